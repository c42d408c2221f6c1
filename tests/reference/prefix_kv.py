"""PrefixKV: one level of attention coverage, common to all layers, says how many tokens each layer keeps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.reference.scores import Array, Kept, best, with_ends


def kept(
    attention: Array,
    keys: Array | None,
    values: Array | None,
    vision: Sequence[bool],
    retention: float,
    variant: str = "online",
    layer_evict_share: Sequence[float] | None = None,
    start: int = 4,
    last: int = 1,
    tolerance: int = 5,
) -> Kept:
    """The ends, and the most important tokens between them; counts searched for, or from a profile."""
    importance = attention.mean(axis=1).sum(axis=1)  # (L, N)
    layers, length = importance.shape
    if variant == "offline":
        forget = [round(share * length) for share in layer_evict_share or []]
    else:
        evict = (1 - retention) * length * layers
        forget = rescaled(search(importance, evict, start + last, tolerance)[1], evict)
    result = []
    for row, count in zip(importance, forget, strict=True):
        middle = range(start, length - last)
        chosen = best(row, len(middle) - min(count, len(middle)), middle)
        result.append([with_ends(chosen, start, last, length)])
    return result


def forgotten(importance: Array, level: float, protected: int) -> list[int]:
    """Tokens each layer forgets when it keeps the shortest prefix that covers `level` of its attention."""
    result = []
    for row in importance:
        ranked = np.sort(row)[::-1]
        covered = np.cumsum(ranked) / ranked.sum()
        index = next((i for i, share in enumerate(covered) if share >= level), len(row) - 1)
        result.append(max(0, len(row) - (index + 1) - protected))
    return result


def search(importance: Array, evict: float, protected: int, tolerance: int = 5) -> tuple[float, list[int]]:
    """Bisect the level until the layers together forget about `evict` tokens; sixty steps at most."""
    low, high = 0.0, 1.0
    for _ in range(60):
        level = (low + high) / 2
        counts = forgotten(importance, level, protected)
        if abs(sum(counts) - evict) < tolerance:
            break
        low, high = (level, high) if sum(counts) > evict else (low, level)
    return level, counts


def rescaled(counts: Sequence[int], evict: float) -> list[int]:
    """The counts brought to the exact total, then cut to whole tokens; 23.999… of a ratio like 1 - 0.8 is 24."""
    total = sum(counts)
    return [int(count * evict / total + 1e-9) if total else 0 for count in counts]

"""VL-Cache: the text behind the image ranks the tokens, and the density of what it looks at splits the budget."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tests.reference.budgets import entries_in_total, entries_per_layer, water_fill
from tests.reference.scores import Array, Kept, best, mean_of_group


def kept(
    attention: Array,
    keys: Array,
    values: Array | None,
    vision: Sequence[bool],
    retention: float,
    variant: str = "paper",
) -> Kept:
    """The last tenth of the budget, and the tokens those rows look at most; one set per KV head."""
    layers, _, length, _ = attention.shape
    window = max(1, entries_per_layer(length, retention) // 10)
    rows = rows_behind(vision)
    densities = [density(layer, rows) for layer in attention]
    if variant == "official":
        past = official_past(densities, length, retention)
    else:
        total = entries_in_total(length, layers, retention) - layers * window
        past = water_fill(densities, total, length - window, floor=0)
    result = []
    for layer, budget in zip(attention, past, strict=True):
        looks = mean_of_group(layer[:, rows].sum(axis=1), keys.shape[1])
        early = range(length - window)
        result.append([[*best(row, budget, early), *range(length - window, length)] for row in looks])
    return result


def rows_behind(vision: Sequence[bool]) -> list[int]:
    """Positions after the last vision token; the last one where there is none, all where nothing is vision."""
    last = max((position for position, flag in enumerate(vision) if flag), default=-1)
    return list(range(last + 1, len(vision))) or [len(vision) - 1]


def density(attention: Array, rows: Sequence[int], share: float = 0.01) -> float:
    """How many of the entries a row may have are at least a share of its largest: (H, N, N), mean over heads."""
    matter = visible = 0
    for head in attention:
        for row in rows:
            entries = head[row, : row + 1]
            matter += sum(1 for entry in entries if entry >= share * entries.max())
            visible += len(entries)
    return matter / visible


def official_past(densities: Sequence[float], length: int, retention: float) -> list[int]:
    """Past tokens per layer as released: clipped and floored, nothing is handed on."""
    result = []
    for own in densities:
        ratio = own / sum(densities) * retention * 0.9 * len(densities)
        result.append(min(length, max(1, math.floor(float(np.clip(ratio, 0.009, 1)) * length))))
    return result

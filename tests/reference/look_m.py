"""LOOK-M: recent tokens, then text, then vision by received attention; what leaves joins its most similar key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.reference.budgets import even_budgets
from tests.reference.h2o import received
from tests.reference.scores import Array, Kept, best


def kept(attention: Array, keys: Array, values: Array | None, vision: Sequence[bool], retention: float) -> Kept:
    """One set per KV head."""
    layers, length = attention.shape[0], attention.shape[-1]
    sums = received(attention, keys.shape[1]) - 10_000 * np.array(vision)
    result = []
    for layer, budget in enumerate(even_budgets(length, layers, retention)):
        recent = max(1, budget // 10)
        early = range(length - recent)
        result.append([[*best(row, budget - recent, early), *range(length - recent, length)] for row in sums[layer]])
    return result


def merged(
    attention: Array, keys: Array, values: Array, vision: Sequence[bool], retention: float
) -> tuple[Array, Array]:
    """Keys and values after merging, (L, G, N, d); only the kept positions of them matter."""
    new_keys, new_values = keys.copy(), values.copy()
    for layer, sets in enumerate(kept(attention, keys, values, vision, retention)):
        for head, stay in enumerate(sets):
            joined = joined_by(keys[layer, head], stay)
            for old, new in ((keys, new_keys), (values, new_values)):
                rows = old[layer, head]
                for position, others in joined.items():
                    halves = [(rows[other] + rows[position]) / 2 for other in others]
                    new[layer, head, position] = np.mean([rows[position], *halves], axis=0)
    return new_keys, new_values


def joined_by(keys: Array, stay: Sequence[int]) -> dict[int, list[int]]:
    """The evicted positions each kept one takes up."""
    unit = keys / np.linalg.norm(keys, axis=-1, keepdims=True)
    joined: dict[int, list[int]] = {position: [] for position in stay}
    for other in range(len(keys)):
        if other not in joined:
            joined[max(stay, key=lambda position: float(unit[other] @ unit[position]))].append(other)
    return joined

"""H2O: the tokens that gathered most attention, and the recent ones; one set per KV head."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.reference.budgets import even_budgets
from tests.reference.scores import Array, Kept, best, column_sums, mean_of_group


def kept(
    attention: Array,
    keys: Array | None,
    values: Array | None,
    vision: Sequence[bool],
    retention: float,
    kv_heads: int | None = None,
    spread: bool = True,
) -> Kept:
    """Half of the budget recent, half heavy; an odd one goes to the recent half."""
    layers, length = attention.shape[0], attention.shape[-1]
    sums = received(attention, kv_heads or keys.shape[1])
    result = []
    for layer, budget in enumerate(even_budgets(length, layers, retention, spread)):
        heavy, recent = halves(budget)
        result.append([heavy_and_recent(row, heavy, recent) for row in sums[layer]])
    return result


def halves(budget: int) -> tuple[int, int]:
    """Heavy and recent entries of a budget."""
    return budget // 2, budget - budget // 2


def received(attention: Array, kv_heads: int) -> Array:
    """Summed attention per KV head, the mean of its query heads: (L, H, N, N) -> (L, G, N)."""
    return np.stack([mean_of_group(column_sums(layer), kv_heads) for layer in attention])


def heavy_and_recent(sums: Sequence[float] | Array, heavy: int, recent: int) -> list[int]:
    """Slots kept of a cache with these running sums."""
    early = len(sums) - recent
    return [*best(sums, heavy, range(early)), *range(early, len(sums))]


def decode_step(positions: Sequence[int], sums: Array, row: Array, heavy: int, recent: int) -> tuple[list[int], Array]:
    """One step of one head: add the new row, then choose again.

    Args:
        positions: True positions in cache order, the new token last.
        sums: Running sums of the slots before the new token.
        row: Attention of the new token over all slots, itself last.
        heavy: Heavy entries.
        recent: Recent entries.

    Returns:
        The positions and running sums that stay.
    """
    total = np.append(sums, 0.0) + row
    slots = heavy_and_recent(total, heavy, recent)
    return [positions[slot] for slot in slots], total[slots]

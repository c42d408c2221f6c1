"""Ada-KV: the KV heads of a layer share its budget by how many of the layer's best votes are theirs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.reference.budgets import even_budgets, observation_window, water_fill
from tests.reference.scores import Array, Kept, window_votes
from tests.reference.snapkv import voted_and_window


def kept(
    attention: Array,
    keys: Array | None,
    values: Array | None,
    vision: Sequence[bool],
    retention: float,
    window: int = 32,
    kernel: int = 7,
    pooling: str = "max",
    floor_share: float = 0.2,
    kv_heads: int | None = None,
    spread: bool = True,
    variant: str = "paper",
) -> Kept:
    """The window in every head, and as many past tokens as the head's budget allows.

    The released code (`official`) knows one budget for all layers, so no layer gets a remainder.
    """
    layers, length = attention.shape[0], attention.shape[-1]
    heads = kv_heads or keys.shape[1]
    size = observation_window(length, retention, window)
    result = []
    share_out = head_budgets if variant == "paper" else official_head_budgets
    for layer, budget in enumerate(even_budgets(length, layers, retention, spread and variant == "paper")):
        votes = window_votes(attention[layer], heads, size, kernel, pooling) / size
        past = share_out(votes, budget - size, floor_share)
        result.append([voted_and_window(row, n, length) for row, n in zip(votes, past, strict=True)])
    return result


def wins(votes: Array, base: int) -> list[int]:
    """How many of the layer's best votes, `base` per head, each head has."""
    heads, past = votes.shape
    flat = [(-votes[head, position], head, position) for head in range(heads) for position in range(past)]
    winners = [head for _, head, _ in sorted(flat)[: heads * base]]
    return [winners.count(head) for head in range(heads)]


def head_wishes(votes: Array, base: int, floor_share: float) -> list[float]:
    """Past tokens per head before rounding: a safeguard, and the head's share of the layer's best votes.

    The released code cuts the safeguard to a whole number; the paper does not, and then the wishes add up.
    """
    return [won * (1 - floor_share) + floor_share * base for won in wins(votes, base)]


def head_budgets(votes: Array, base: int, floor_share: float) -> list[int]:
    """Whole past tokens per head of a layer that has `base` of them per head on average."""
    return water_fill(head_wishes(votes, base, floor_share), len(votes) * base, votes.shape[1], floor=0)


def official_head_budgets(votes: Array, base: int, floor_share: float) -> list[int]:
    """As released: the safeguard cut to a whole number, each head rounded to the nearest, halves to even."""
    safeguard = math.floor(base * floor_share)
    return [nearest_even(won * (1 - floor_share) + safeguard) for won in wins(votes, base)]


def nearest_even(value: float) -> int:
    """The nearest whole number; of two equally near ones the even one."""
    below = math.floor(value)
    rest = value - below
    return below + (rest > 0.5 or (rest == 0.5 and below % 2 == 1))

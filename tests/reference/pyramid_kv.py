"""PyramidKV: SnapKV's votes with budgets that fall linearly with depth."""

from __future__ import annotations

from collections.abc import Sequence

from tests.reference.budgets import entries_in_total, entries_per_layer, observation_window, water_fill
from tests.reference.scores import Array, Kept, window_votes
from tests.reference.snapkv import voted_and_window


def kept(
    attention: Array,
    keys: Array | None,
    values: Array | None,
    vision: Sequence[bool],
    retention: float,
    variant: str = "paper",
    window: int = 64,
    kernel: int = 5,
    pooling: str = "avg",
    beta: int = 20,
    kv_heads: int | None = None,
    spread: bool = True,
) -> Kept:
    """Votes as in SnapKV; the layer budgets of the project, or the unconserved ones of the released code."""
    layers, length = attention.shape[0], attention.shape[-1]
    heads = kv_heads or keys.shape[1]
    size = observation_window(length, retention, window)
    if variant == "official":
        past = official_past(length, layers, entries_per_layer(length, retention), size, beta)
    else:
        past = project_past(length, layers, retention, size, beta, spread)
    result = []
    for layer, budget in enumerate(past):
        votes = window_votes(attention[layer], heads, size, kernel, pooling)
        result.append([voted_and_window(row, budget, length) for row in votes])
    return result


def ends_of_line(length: int, base: int, window: int, beta: int) -> tuple[int, int]:
    """Past tokens of the first and of the last layer."""
    low = base // beta
    high = 2 * base - low
    if high >= length - window:
        high = length - window
        low = 2 * base - high
    return high, low


def official_past(length: int, layers: int, cap: int, window: int, beta: int = 20) -> list[int]:
    """Past tokens per layer as released: a whole-number step, so the total is not kept."""
    base = cap - window
    if length < cap:
        return [length - window] * layers
    if length < 2 * base:
        return [base] * layers
    high, low = ends_of_line(length, base, window, beta)
    step = (high - low) // max(1, layers - 1)
    return [high - layer * step for layer in range(layers)]


def project_past(length: int, layers: int, retention: float, window: int, beta: int, spread: bool = True) -> list[int]:
    """The same line with a real step, split so that the total is met; past tokens may be none at all."""
    base = entries_per_layer(length, retention) - window
    high, low = ends_of_line(length, base, window, beta)
    line = [high - layer * (high - low) / max(1, layers - 1) for layer in range(layers)]
    total = entries_in_total(length, layers, retention) - layers * window if spread else layers * base
    return water_fill(line, total, length - window, floor=0)

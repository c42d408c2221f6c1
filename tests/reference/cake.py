"""CAKE: layers with spread-out, changing window attention get more; tokens with high or changing attention stay."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tests.reference.budgets import entries_in_total, entries_per_layer, observation_window, water_fill
from tests.reference.scores import Array, Kept, mean_of_group, pooled
from tests.reference.snapkv import voted_and_window


def kept(
    attention: Array,
    keys: Array,
    values: Array | None,
    vision: Sequence[bool],
    retention: float,
    variant: str = "paper",
    window: int = 32,
    gamma: float = 200.0,
    kernel: int = 5,
) -> Kept:
    """The window, and the best of the tokens before it; one set per KV head."""
    layers, _, length, _ = attention.shape
    size = observation_window(length, retention, window)
    wishes = [preference(layer, size) for layer in attention]
    if variant == "official":
        past = official_past(wishes, length, entries_per_layer(length, retention), size)
    else:
        total = entries_in_total(length, layers, retention) - layers * size
        past = water_fill(wishes, total, length - size, floor=0)
    result = []
    for layer, budget in zip(attention, past, strict=True):
        votes = mean_of_group(scores(layer, size, gamma), keys.shape[1])
        result.append([voted_and_window(pooled(row, kernel, "avg"), budget, length) for row in votes])
    return result


def before_window(attention: Array, size: int) -> Array:
    """Window rows over the keys before the window: (H, N, N) -> (H, size, N - size)."""
    length = attention.shape[-1]
    return attention[:, length - size :, : length - size]


def variance(rows: Array) -> Array:
    """Unbiased variance over the rows; nothing varies in a single one."""
    return rows.var(axis=1, ddof=1) if rows.shape[1] > 1 else np.zeros_like(rows[:, 0])


def scores(attention: Array, size: int, gamma: float) -> Array:
    """Mean plus weighted variance of what each query head's window rows pay: (H, N - size)."""
    rows = before_window(attention, size)
    return rows.mean(axis=1) + gamma * variance(rows)


def preference(attention: Array, size: int) -> float:
    """Entropy times temporal variance of a layer's window."""
    rows = before_window(attention, size)
    return float(-(rows * np.log(rows + 1e-10)).sum() * variance(rows).sum())


def official_past(wishes: Sequence[float], length: int, cap: int, window: int) -> list[int]:
    """Past tokens per layer as released; may exceed what there is, and then everything stays."""
    if length <= cap + window:
        return [length - window] * len(wishes)
    total = (cap - window) * len(wishes)
    mass = sum(wishes)
    raw = [wish / mass * total if mass > 0 else total / len(wishes) for wish in wishes]
    return [min(length - window, budget) for budget in repaired(raw, total, length - window)]


def repaired(raw: Sequence[float], total: int, cap: int) -> list[int]:
    """Truncate and cap; hand what was cut off, then what is missing, to the layers below the cap, one by one."""
    whole = [math.trunc(budget) for budget in raw]
    budgets = [min(budget, cap) for budget in whole]
    hand_out(budgets, sum(whole) - sum(budgets), cap)
    hand_out(budgets, total - sum(budgets), cap)
    return budgets


def hand_out(budgets: list[int], count: int, cap: int) -> None:
    """Round and round over the layers that were below the cap at the start (all of them when taking away)."""
    takers = [layer for layer, budget in enumerate(budgets) if count < 0 or budget < cap]
    for turn in range(abs(count) if takers else 0):
        layer = takers[turn % len(takers)]
        budgets[layer] = max(0, budgets[layer] + (1 if count > 0 else -1))

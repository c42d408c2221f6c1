"""ElasticCache: each evicted token is averaged into the nearest kept one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.reference.budgets import even_budgets
from tests.reference.scores import Array, Kept, best, with_ends


class OfficialBroke(RuntimeError):
    """The released code raises on this prompt."""


@dataclass(frozen=True)
class Plan:
    """What one layer keeps, what it throws away, and the kept position each thrown one is merged into."""

    kept: list[int]
    thrown: list[int]
    merge_into: list[int]


def kept(
    attention: Array,
    keys: Array | None,
    values: Array | None,
    vision: Sequence[bool],
    retention: float,
    **params,
) -> Kept:
    """Positions each layer keeps; one set for all heads of a layer."""
    return [[plan.kept] for plan in plans(attention, retention, **params)]


def merged(
    attention: Array, keys: Array, values: Array, vision: Sequence[bool], retention: float, **params
) -> tuple[Array, Array]:
    """Keys and values after merging, (L, G, N, d); only the kept positions of them matter."""
    every = plans(attention, retention, **params)
    merge = [[merged_rows(rows, plan) for rows, plan in zip(side, every, strict=True)] for side in (keys, values)]
    return np.stack(merge[0]), np.stack(merge[1])


def plans(
    attention: Array,
    retention: float,
    variant: str = "paper",
    start: int = 4,
    last: int = 1,
    spread: bool = True,
) -> list[Plan]:
    """The plan of every layer, from the column sums of its head-mean attention."""
    layers, length = attention.shape[0], attention.shape[-1]
    importance = attention.mean(axis=1).sum(axis=1)  # (L, N)
    if variant == "official":
        evict = 1 - retention
        forget = math.trunc(length - length * (1 - evict))
        return [official_plan(row, forget, start, last) for row in importance]
    counts = even_budgets(length, layers, retention, spread)
    return [corrected_plan(row, length - count, start, last) for row, count in zip(importance, counts, strict=True)]


def corrected_plan(importance: Array, forget: int, start: int, last: int) -> Plan:
    """Keep the truly most important ones; without any of them left there is nothing to merge into."""
    length = len(importance)
    middle = range(start, length - last)
    chosen = best(importance, len(middle) - forget, middle)
    thrown = [position for position in middle if position not in chosen]
    if not chosen:
        return Plan(with_ends([], start, last, length), [], [])
    return Plan(with_ends(chosen, start, last, length), thrown, [nearest(chosen, t) for t in thrown])


def official_plan(importance: Array, forget: int, start: int, last: int) -> Plan:
    """As released: the argsort permutation is read as ranks, thrown slots are not shifted to positions."""
    length = len(importance)
    if forget <= 0:
        return Plan(list(range(length)), [], [])
    order = np.argsort(importance[start : length - last], kind="stable")
    chosen = [slot + start for slot, entry in enumerate(order) if entry > forget]
    thrown = [slot for slot, entry in enumerate(order) if entry <= forget]
    if not chosen:
        raise OfficialBroke(f"no anchor is left at {forget} of {length} tokens evicted")
    return Plan(with_ends(chosen, start, last, length), thrown, [nearest(chosen, t) for t in thrown])


def nearest(anchors: Sequence[int], position: int) -> int:
    """The anchor closest to a position, the lower one of two equally close."""
    return min(anchors, key=lambda anchor: (abs(anchor - position), anchor))


def merged_rows(rows: Array, plan: Plan) -> Array:
    """Every anchor becomes the mean of itself and what was thrown to it: (G, N, d) -> (G, N, d)."""
    result = rows.copy()
    for anchor in set(plan.merge_into):
        joined = [t for t, target in zip(plan.thrown, plan.merge_into, strict=True) if target == anchor]
        result[:, anchor] = (rows[:, anchor] + rows[:, joined].sum(axis=1)) / (1 + len(joined))
    return result

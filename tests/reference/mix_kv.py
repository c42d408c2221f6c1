"""MixKV: SnapKV's votes and the size of values, mixed with how unlike the other keys a key is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.reference.budgets import even_budgets, observation_window
from tests.reference.scores import Array, Kept, window_votes
from tests.reference.snapkv import voted_and_window


def kept(
    attention: Array,
    keys: Array,
    values: Array,
    vision: Sequence[bool],
    retention: float,
    window: int = 32,
    kernel: int = 5,
    pooling: str = "avg",
    head_mix: Sequence[float] | None = None,
) -> Kept:
    """The window, and the best mixed scores before it; one set per KV head."""
    layers, _, length, _ = attention.shape
    size = observation_window(length, retention, window)
    result = []
    for layer, budget in enumerate(even_budgets(length, layers, retention)):
        if budget == length:
            result.append([list(range(length)) for _ in range(keys.shape[1])])
            continue
        votes = window_votes(attention[layer], keys.shape[1], size, kernel, pooling) / size
        sets = []
        for head, row in enumerate(votes):
            share = np.clip(mean_cosine(keys[layer, head]), 0, 1) if head_mix is None else head_mix[head]
            mixed = mix(row, keys[layer, head], values[layer, head], share)
            sets.append(voted_and_window(mixed, budget - size, length))
        result.append(sets)
    return result


def units(keys: Array) -> Array:
    """Directions of the keys (N, d)."""
    return keys / np.linalg.norm(keys, axis=-1, keepdims=True)


def mean_cosine(keys: Array) -> float:
    """Mean cosine over all pairs of different keys."""
    length = len(keys)
    cosines = units(keys) @ units(keys).T
    return float(cosines[~np.eye(length, dtype=bool)].mean()) if length > 1 else 0.0


def mix(votes: Array, keys: Array, values: Array, share: float) -> Array:
    """Scores of the tokens before the window."""
    past = len(votes)
    unlike = -units(keys) @ units(keys).mean(axis=0)
    norms = np.linalg.norm(values, axis=-1)
    return share * level(unlike[:past], votes) + (1 - share) * (votes + level(norms[:past], votes))


def level(x: Array, votes: Array) -> Array:
    """Stretch to [0, 1], then scale to the mean of the votes."""
    spread = x.max() - x.min()
    x = (x - x.min()) / spread if spread > 0 else np.zeros_like(x)
    return x * votes.mean() / (x.mean() + 1e-8)

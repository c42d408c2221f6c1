"""The cheap controls: TOVA, KeyDiff, K-norm, observed attention and Expected Attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.reference.budgets import even_budgets
from tests.reference.scores import Array, Kept, best, mean_of_group, softmax


def tova(
    attention: Array,
    keys: Array | None,
    values: Array | None,
    vision: Sequence[bool],
    retention: float,
    spread: bool = True,
) -> Kept:
    """The last token and what it looks at most, all heads of a layer together."""
    layers, length = attention.shape[0], attention.shape[-1]
    rows = attention[:, :, -1, :-1].mean(axis=1)
    budgets = even_budgets(length, layers, retention, spread)
    return [[[*best(row, budget - 1), length - 1]] for row, budget in zip(rows, budgets, strict=True)]


def keydiff(
    attention: Array | None,
    keys: Array,
    values: Array | None,
    vision: Sequence[bool],
    retention: float,
    spread: bool = True,
) -> Kept:
    """The keys least like the mean direction of all keys."""
    scores = np.zeros(keys.shape[:3])
    for layer, head in np.ndindex(*keys.shape[:2]):
        unit = keys[layer, head] / np.linalg.norm(keys[layer, head], axis=-1, keepdims=True)
        mean = unit.mean(axis=0)
        scores[layer, head] = -unit @ mean / np.linalg.norm(mean)
    return best_per_head(scores, retention, spread)


def knorm(
    attention: Array | None,
    keys: Array,
    values: Array | None,
    vision: Sequence[bool],
    retention: float,
    spread: bool = True,
) -> Kept:
    """The shortest keys."""
    return best_per_head(-np.linalg.norm(keys, axis=-1), retention, spread)


def observed_attention(
    attention: Array,
    keys: Array,
    values: Array | None,
    vision: Sequence[bool],
    retention: float,
    spread: bool = True,
) -> Kept:
    """Attention received per row that could see the key."""
    layers, heads, length, _ = attention.shape
    scores = np.zeros((layers, heads, length))
    for key in range(length):
        scores[:, :, key] = attention[:, :, key:, key].mean(axis=-1)
    return best_per_head(np.stack([mean_of_group(layer, keys.shape[1]) for layer in scores]), retention, spread)


def expected_attention(
    attention: Array | None,
    keys: Array,
    values: Array,
    vision: Sequence[bool],
    retention: float,
    queries: Array | None = None,
    rotation: Array | None = None,
    sinks: int = 4,
    epsilon: float = 0.0,
    covariance: bool = True,
    spread: bool = True,
) -> Kept:
    """What Gaussian future queries would look at; queries (L, H, N, d) are those before the rotation.

    Args:
        attention: Not used.
        keys: Rotated keys (L, G, N, d).
        values: Values of the same shape.
        vision: Not used.
        retention: Share kept.
        queries: Queries after the query norm, before the rotation.
        rotation: Mean rotation over the future positions (d, d); none at all when left out.
        sinks: First tokens, left out of the statistics and always on top.
        epsilon: Added to the expected attention before it meets the value norms.
        covariance: Use the spread of the queries, not only their mean.
        spread: See `even_budgets`.
    """
    turn = np.eye(keys.shape[-1]) if rotation is None else rotation
    scores = np.zeros(keys.shape[:3])
    for layer in range(keys.shape[0] if keys.shape[2] > sinks else 0):
        looks = expected_looks(queries[layer, :, sinks:], keys[layer, :, sinks:], turn, covariance)
        scores[layer, :, sinks:] = (looks + epsilon) * np.linalg.norm(values[layer, :, sinks:], axis=-1)
    scores[:, :, :sinks] = scores.max() + 1
    return best_per_head(scores, retention, spread)


def expected_looks(queries: Array, keys: Array, turn: Array, covariance: bool) -> Array:
    """Expected attention per KV head over the keys after the sinks: (H, n, d), (G, n, d) -> (G, n)."""
    heads, kv_heads, size = queries.shape[0], keys.shape[0], keys.shape[-1]
    looks = np.zeros((heads, keys.shape[1]))
    for head in range(heads):
        key = keys[head // (heads // kv_heads)]
        logits = key @ (turn @ queries[head].mean(axis=0)) / np.sqrt(size)
        if covariance:
            shape = turn @ np.cov(queries[head].T, bias=True) @ turn.T
            logits = logits + np.einsum("ni,ij,nj->n", key, shape, key) / (2 * size)
        looks[head] = softmax(logits)
    return mean_of_group(looks, kv_heads)


def best_per_head(scores: Array, retention: float, spread: bool) -> Kept:
    """The best scored tokens of every KV head, from scores (L, G, N)."""
    budgets = even_budgets(scores.shape[-1], scores.shape[0], retention, spread)
    return [[best(row, budget) for row in layer] for layer, budget in zip(scores, budgets, strict=True)]

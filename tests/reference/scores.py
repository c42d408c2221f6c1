"""Statistics of the prompt's full attention matrices, and the one rule that picks the best positions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

Array = np.ndarray
Kept = list[list[list[int]]]  # [layer][set][position], one set per layer or one per KV head


def best(scores: Sequence[float] | Array, count: int, among: Iterable[int] | None = None) -> list[int]:
    """The highest-scored positions in ascending order; of equal ones the lower position first."""
    candidates = range(len(scores)) if among is None else among
    ranked = sorted(candidates, key=lambda position: (-scores[position], position))
    return sorted(ranked[: max(0, count)])


def column_sums(rows: Array) -> Array:
    """Attention each key received, summed over the query rows: (..., rows, N) -> (..., N)."""
    return rows.sum(axis=-2)


def mean_of_group(per_query_head: Array, kv_heads: int) -> Array:
    """Average the query heads that share a KV head: (H, ...) -> (G, ...)."""
    heads = per_query_head.shape[0]
    return per_query_head.reshape(kv_heads, heads // kv_heads, *per_query_head.shape[1:]).mean(axis=1)


def pooled(row: Array, kernel: int, kind: str) -> Array:
    """Pool along the positions with stride 1; an average counts the zeros beyond the ends."""
    reach = kernel // 2
    result = np.zeros(len(row))
    for position in range(len(row)):
        neighbours = row[max(0, position - reach) : position + reach + 1]
        result[position] = neighbours.max() if kind == "max" else neighbours.sum() / kernel
    return result


def window_votes(attention: Array, kv_heads: int, window: int, kernel: int, pooling: str) -> Array:
    """SnapKV's score of every token before the window, one row per KV head: (H, N, N) -> (G, N - window)."""
    length = attention.shape[-1]
    votes = attention[:, length - window :, : length - window].sum(axis=1)
    return np.stack([pooled(row, kernel, pooling) for row in mean_of_group(votes, kv_heads)])


def with_ends(middle: Iterable[int], start: int, last: int, length: int) -> list[int]:
    """The middle positions together with the first and the last ones."""
    return sorted({*range(min(start, length)), *middle, *range(max(0, length - last), length)})


def attention_of(queries: Array, keys: Array) -> Array:
    """Causal softmax attention from rotated queries (L, H, N, d) and keys (L, G, N, d)."""
    repeat = queries.shape[1] // keys.shape[1]
    logits = queries @ np.repeat(keys, repeat, axis=1).swapaxes(-1, -2) / np.sqrt(queries.shape[-1])
    length = logits.shape[-1]
    logits = np.where(np.tril(np.ones((length, length), dtype=bool)), logits, -np.inf)
    return softmax(logits)


def softmax(logits: Array) -> Array:
    """Softmax along the last axis."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)

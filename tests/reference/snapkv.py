"""SnapKV: the last queries of the prompt vote for the tokens before them; one set per KV head."""

from __future__ import annotations

from collections.abc import Sequence

from tests.reference.budgets import even_budgets, observation_window
from tests.reference.scores import Array, Kept, best, window_votes


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
    kv_heads: int | None = None,
    spread: bool = True,
) -> Kept:
    """The window, and the best pooled votes; `literal` keeps the window even where it is the whole budget."""
    layers, length = attention.shape[0], attention.shape[-1]
    heads = kv_heads or keys.shape[1]
    size = window if variant == "literal" else observation_window(length, retention, window)
    result = []
    for layer, budget in enumerate(even_budgets(length, layers, retention, spread)):
        if size >= budget:
            result.append([list(range(length - budget, length)) for _ in range(heads)])
            continue
        votes = window_votes(attention[layer], heads, size, kernel, pooling)
        result.append([voted_and_window(row, budget - size, length) for row in votes])
    return result


def voted_and_window(votes: Array, past: int, length: int) -> list[int]:
    """The `past` best tokens before the window, then the window."""
    return [*best(votes, past), *range(len(votes), length)]

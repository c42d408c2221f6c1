"""StreamingLLM: the first tokens and the most recent ones."""

from __future__ import annotations

from collections.abc import Sequence

from tests.reference.budgets import even_budgets
from tests.reference.scores import Array, Kept


def kept(
    attention: Array,
    keys: Array | None,
    values: Array | None,
    vision: Sequence[bool],
    retention: float,
    sinks: int = 4,
    spread: bool = True,
) -> Kept:
    """Sinks and a recent window; the window is at least the last token."""
    layers, length = attention.shape[0], attention.shape[-1]
    return [[sinks_and_recent(length, b, sinks)] for b in even_budgets(length, layers, retention, spread)]


def sinks_and_recent(length: int, budget: int, sinks: int) -> list[int]:
    """`budget` positions: the first few, then the end of the prompt."""
    first = min(sinks, budget - 1)
    return [*range(first), *range(length - (budget - first), length)]

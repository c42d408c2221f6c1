"""The full cache: every position of every layer."""

from __future__ import annotations

from collections.abc import Sequence

from tests.reference.scores import Array, Kept


def kept(
    attention: Array, keys: Array | None, values: Array | None, vision: Sequence[bool], retention: float = 1.0
) -> Kept:
    """All of them, whatever the retention says."""
    return [[list(range(attention.shape[-1]))] for _ in range(attention.shape[0])]

"""What a check measured, and what it must not exceed or fall below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tabulate import tabulate


class Bound(NamedTuple):
    """A measured ratio and what it must not exceed, or not fall below."""

    what: str
    value: float
    bound: float
    at_most: bool = True

    @property
    def met(self) -> bool:
        return self.value <= self.bound if self.at_most else self.value >= self.bound


def as_text(bounds: Sequence[Bound]) -> str:
    """A table with a line per ratio; what was missed says so."""
    rows = [
        (b.what, f"{b.value:.3f}", f"{'at most' if b.at_most else 'at least'} {b.bound:g}", "" if b.met else "MISSED")
        for b in bounds
    ]
    return tabulate(rows, headers=["ratio", "measured", "bound", ""], disable_numparse=True)

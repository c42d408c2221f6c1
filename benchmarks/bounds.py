"""What is promised, what was seen, and whether that is enough to tell."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scipy.stats import quantile_test
from tabulate import tabulate

MET, MISSED, UNDECIDED, FIGURE = "met", "MISSED", "undecided", ""
LEAST = 6
"""Repeats from which the median has a 95 % interval at all: 2 * 0.5 ** 6 < 0.05 <= 2 * 0.5 ** 5."""


class Promise(NamedTuple):
    """A ratio and what it must not exceed, or not fall below; None promises nothing: a figure of this machine."""

    what: str
    bound: float | None = None
    at_most: bool = True

    def holds(self, value: float) -> bool:
        """Whether one value is within the bound."""
        if self.bound is None:
            return True
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        return "-" if self.bound is None else f"{'at most' if self.at_most else 'at least'} {self.bound:g}"


@dataclass(frozen=True)
class Finding:
    """What was seen of a promise.

    Attributes:
        values: a ratio per repeat. counted: bytes or operations, which are the same every time, so that one is enough.
        trouble: why there are not more values, in words.
    """

    promise: Promise
    values: Sequence[float]
    counted: bool = False
    trouble: str = ""

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the median from the order of the values, whatever their distribution; NaN: too few."""
        if len(self.values) < LEAST:
            return math.nan, math.nan
        low, high = quantile_test(list(self.values), q=statistics.median(self.values)).confidence_interval(0.95)
        return float(low), float(high)

    @property
    def verdict(self) -> str:
        """MET or MISSED only where the whole interval lies on one side of the bound."""
        if self.promise.bound is None:
            return FIGURE
        ends = self.values if self.counted else self.interval
        if not ends or not all(map(math.isfinite, [*ends, *self.values])):
            return UNDECIDED
        sides = {self.promise.holds(end) for end in ends}
        return UNDECIDED if len(sides) == 2 else MET if sides == {True} else MISSED

    @property
    def reason(self) -> str:
        """Why nothing was decided."""
        if not self.counted and len(self.values) >= LEAST and all(map(math.isfinite, self.values)):
            low, high = self.interval
            return f"the interval {low:.3f} to {high:.3f} has the bound inside it; more repeats decide: --seconds"
        few = "" if self.counted else f"{len(self.values)} undisturbed repeats, {LEAST} are needed; "
        return few + (self.trouble or "what was measured is no number")

    def row(self) -> tuple[str, str, str, str, str]:
        """Of the table."""
        median = f"{statistics.median(self.values):.3f}" if self.values else "-"
        low, high = (math.nan, math.nan) if self.counted else self.interval
        spread = "counted" if self.counted else f"{low:.3f} to {high:.3f}, n = {len(self.values)}"
        if not self.counted and math.isnan(low):
            spread = f"n = {len(self.values)}"
        return self.promise.what, median, spread, str(self.promise), self.verdict


def as_text(findings: Sequence[Finding]) -> str:
    """A table with a line per ratio; below it, why some could not be decided."""
    rows = [finding.row() for finding in findings]
    table = tabulate(rows, headers=["ratio", "median", "95 % interval", "bound", ""], disable_numparse=True)
    reasons: dict[str, list[str]] = {}
    for finding in findings:
        if finding.verdict == UNDECIDED:
            reasons.setdefault(finding.reason, []).append(finding.promise.what)
    return "\n".join([table, *(f"undecided: {'; '.join(what)}: {reason}" for reason, what in reasons.items())])


def status(findings: Sequence[Finding]) -> int:
    """Exit status: 1 when a promise is missed, else 3 when one could not be decided, else 0."""
    verdicts = {finding.verdict for finding in findings}
    return 1 if MISSED in verdicts else 3 if UNDECIDED in verdicts else 0

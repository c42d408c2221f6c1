"""Times that are compared: taken in turn, A B, B A, A B …, until their ratio is known or the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks.bounds import LEAST, UNDECIDED, Finding, Promise
from benchmarks.load import Load, Watch

MOST = 40  # repeats


class Timed(NamedTuple):
    """What is timed for some promises.

    Attributes:
        sides: name by name, what is run in a repeat; each measures itself and returns seconds or what else it saw.
        ratios: takes what the sides returned, by name; gives a ratio for each promise.
    """

    promises: Sequence[Promise]
    sides: dict[str, Callable[[], Any]]
    ratios: Callable[..., Sequence[float]]


def measure(timed: Timed, seconds: float, watch: Callable[[], Watch] = Watch) -> list[Finding]:
    """Repeat until every promise is decided; a repeat in which the machine was disturbed does not count.

    The first repeat warms up and is left out. At least one more is made, at most until ``seconds`` are over. The
    interval is looked at after every repeat, so it errs more often than one look would: where the true median is the
    bound itself, 8 of 100 checks say met and 8 missed; where 8 of 10 repeats are within it, less than 1 of 1000 says
    missed (simulated).
    """
    started = time.monotonic()
    _repeat(timed, 0, watch)
    kept: list[Sequence[float]] = []
    aside: list[Load] = []
    for turn in range(MOST):
        load, ratios = _repeat(timed, turn, watch)
        if load.trouble:
            aside.append(load)
        else:
            kept.append(ratios)
        findings = _findings(timed, kept, aside)
        decided = all(finding.verdict != UNDECIDED for finding in findings)
        if (decided and len(kept) >= LEAST) or time.monotonic() - started > seconds:
            break
    return findings


def _repeat(timed: Timed, turn: int, watch: Callable[[], Watch]) -> tuple[Load, Sequence[float]]:
    """Every side once; every other time in reverse, so that a drift of the machine favours none."""
    seen = {}
    with watch() as watching:
        for place, name in enumerate(list(timed.sides)[:: -1 if turn % 2 else 1]):
            if place:
                watching.mark()
            seen[name] = timed.sides[name]()
    return watching.load, timed.ratios(**seen)


def _findings(timed: Timed, kept: Sequence[Sequence[float]], aside: Sequence[Load]) -> list[Finding]:
    trouble = f"the machine was busy: {Load.worst(aside).trouble}" if aside else "the time was over"
    values = list(zip(*kept, strict=True)) or [()] * len(timed.promises)
    return [Finding(promise, one, trouble=trouble) for promise, one in zip(timed.promises, values, strict=True)]

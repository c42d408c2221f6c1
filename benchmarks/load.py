"""Whether the machine was ours while something was timed: what other programs took, and how steady its speed was."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import torch

_THREADS = Path("/proc/self/task")
_QUOTA = Path("/sys/fs/cgroup/cpu.stat")
_IDLE = ("idle", "iowait", "guest", "guest_nice")  # guest time is part of user time


class Load(NamedTuple):
    """Of a span of time, shares from 0. A count that a system does not give stays 0; the pace is measured anywhere.

    Attributes:
        waited: time our threads were ready and had no processor, of their own time (Linux).
        others: what other programs took, of all processors.
        stolen: what the machine under a virtual one took, of all processors (Linux).
        throttled: time the process was stopped by its own limit of processor time, of the span (Linux).
        pace: slowest over fastest of the same piece of work, done before, between and after what is timed; minus 1.
    """

    waited: float = 0.0
    others: float = 0.0
    stolen: float = 0.0
    throttled: float = 0.0
    pace: float = 0.0

    @property
    def trouble(self) -> str:
        """What disturbed the measurement, in words, or nothing."""
        return "; ".join(
            words.format(value) for value, (most, words) in zip(self, _LIMITS.values(), strict=True) if value > most
        )

    @classmethod
    def worst(cls, loads: Sequence[Load]) -> Load:
        """The most of each."""
        return cls(*map(max, zip(*loads))) if loads else cls()


_LIMITS = {
    "waited": (0.05, "this program waited for a processor up to {:.0%} of its time"),
    "others": (0.10, "other programs took up to {:.0%} of the processors"),
    "stolen": (0.02, "the host of this virtual machine took up to {:.0%} of the processors"),
    "throttled": (0.02, "a limit of processor time stopped this program up to {:.0%} of the time"),
    "pace": (0.30, "the same piece of work took up to {:.0%} longer from one moment to the next"),
}


class Watch:
    """Context manager around a repeat; `load` is known when it ends. :meth:`mark` between the sides notes the pace."""

    load = Load()

    def __init__(self) -> None:
        self._paces: list[tuple[float, float]] = []

    def mark(self) -> None:
        """Do the fixed pieces of work: products that stay in a cache, and a sum of memory that does not."""
        self._paces.append((_fastest(lambda: _SQUARE @ _SQUARE), _fastest(_LARGE.sum)))

    def __enter__(self) -> Watch:
        self.mark()
        self._before, self._started = _counters(), time.perf_counter()
        return self

    def __exit__(self, *exc: object) -> None:
        span = time.perf_counter() - self._started
        delta = {name: value - self._before.get(name, 0.0) for name, value in _counters().items()}
        self.mark()
        processors = span * (psutil.cpu_count() or 1)
        self.load = Load(
            waited=max(0.0, delta["waited"]) / (delta["own"] + delta["waited"] or 1.0),
            others=max(0.0, delta["busy"] - delta["own"] - delta["stolen"]) / processors,
            stolen=delta["stolen"] / processors,
            throttled=delta["throttled"] / span,
            pace=max(max(kind) / min(kind) for kind in zip(*self._paces)) - 1,
        )


_SQUARE, _LARGE = torch.ones(512, 512), torch.ones(1 << 24)  # 1 MiB, 64 MiB


@torch.inference_mode()
def _fastest(work: object, repeats: int = 5) -> float:
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()  # type: ignore[operator]
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _counters() -> dict[str, float]:
    """Seconds since some beginning: of all processors busy and stolen, of this process running, waiting and stopped."""
    times, own = psutil.cpu_times(), psutil.Process().cpu_times()
    busy = sum(value for name, value in times._asdict().items() if name not in _IDLE)
    mine = own.user + own.system
    return {"busy": busy, "own": mine, "stolen": getattr(times, "steal", 0.0)} | {
        "waited": _waited(),
        "throttled": _throttled(),
    }


def _waited() -> float:
    total = 0
    for thread in _THREADS.iterdir() if _THREADS.is_dir() else ():
        with suppress(OSError, IndexError, ValueError):  # a thread that ended, a kernel that does not count
            total += int((thread / "schedstat").read_text(encoding="ascii").split()[1])
    return total / 1e9


def _throttled() -> float:
    with suppress(OSError, ValueError, KeyError):
        lines = _QUOTA.read_text(encoding="ascii").splitlines()
        return int(dict(line.split() for line in lines)["throttled_usec"]) / 1e6
    return 0.0

"""How many entries each layer keeps. Every budget spends floor(r N L) exactly, at least one entry per layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from .errors import ConfigError
from .statistics import PrefillStats


def tokens_kept(retention: float, count: int) -> int:
    """floor(retention * count), safe against 1 - 0.9 = 0.09999…; at least 1."""
    return max(1, math.floor(retention * count + 1e-9))


def water_fill(shares: Sequence[float], total: int, cap: int, floor: int = 1) -> list[int]:
    """Split ``total`` entries over layers in proportion to ``shares``, each between ``floor`` and ``cap``.

    A layer that would exceed ``cap`` is fixed there and its surplus spread over the others in proportion (the same at
    the floor); real budgets become integers by largest remainder, lower layer first. Degenerate shares
    (all zero, NaN or negative) mean uniform. The sum is ``total`` exactly whenever L * floor <= total <= L * cap.
    """
    n = len(shares)
    total = min(total, n * cap)
    if any(not math.isfinite(s) or s < 0 for s in shares) or sum(shares) <= 0:
        shares = [1.0] * n
    budgets = _fill(shares, total, cap, floor)
    floors = [math.floor(b + 1e-9) for b in budgets]
    by_remainder = sorted(range(n), key=lambda i: (-round(budgets[i] - floors[i], 9), i))
    for i in by_remainder[: total - sum(floors)]:
        floors[i] += 1
    return floors


def _fill(shares: Sequence[float], total: int, cap: int, floor: int) -> list[float]:
    """Real-valued water-filling between ``floor`` and ``cap``."""
    fixed: dict[int, float] = {}
    while True:
        free = [i for i in range(len(shares)) if i not in fixed]
        left, weight = total - sum(fixed.values()), sum(shares[i] for i in free)
        real = {i: left * shares[i] / weight if weight > 0 else left / len(free) for i in free}
        over = {i: float(cap) for i in free if real[i] > cap + 1e-9}
        under = {i: float(floor) for i in free if real[i] < floor - 1e-9}
        if not over and not under:
            return [fixed[i] if i in fixed else real[i] for i in range(len(shares))]
        # fix only the side with the larger violation: its surplus may lift the other side back into range
        surplus = sum(real[i] - cap for i in over) - sum(floor - real[i] for i in under)
        fixed.update(over if surplus >= 0 and over else under or over)


class Budget(Protocol):
    """Layer budgets: entries kept per layer (and per KV head where a method keeps one set per head).

    One whose ``from_length`` is True needs the prompt's length and nothing that was measured, so that every layer can
    evict as soon as it has run.
    """

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        """Return L integers, each in [1, N]."""
        ...


def total_budget(stats: PrefillStats, retention: float) -> int:
    """B_tot = floor(r N L). Raises ConfigError when some layer would be left without an entry."""
    n, layers = stats.prompt.length, stats.n_layers
    total = tokens_kept(retention, n * layers)
    if total < layers:
        raise ConfigError(
            f"KV_RETENTION={retention:g} keeps {total} entries of a {n}-token prompt over {layers} layers: "
            f"less than one per layer; use at least {1 / n:.3g}"
        )
    return total


@dataclass(frozen=True)
class Uniform:
    """The same budget in every layer."""

    from_length: ClassVar[bool] = True

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        return water_fill([1.0] * stats.n_layers, total_budget(stats, retention), stats.prompt.length)

"""CAKE's budgets as released, antgroup/cakekv cake/utils.py: truncated and repaired, and no eviction unless N > B + w.

The repair may leave a layer above the cap and so waste entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..budgets import tokens_kept
from ..statistics import PrefillStats
from .cake import Preference


@dataclass(frozen=True)
class OfficialPreference(Preference):
    """Real budgets truncated, then repaired, see :func:`repaired`."""

    def past(self, preferences: Sequence[float], total: int, cap: int) -> list[int]:
        """Past tokens per layer; equal where no layer is preferred."""
        whole = sum(preferences)
        raw = [p / whole * total if whole > 0 else total / len(preferences) for p in preferences]
        return repaired(raw, total, cap)

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        n, budget = stats.prompt.length, tokens_kept(retention, stats.prompt.length)
        window = self.votes.size(budget)
        if n <= budget + window:
            return [n] * stats.n_layers
        past = self.past(self.preferences(stats, budget), (budget - window) * stats.n_layers, n - window)
        return [min(n, window + entries) for entries in past]


def repaired(raw: Sequence[float], total: int, cap: int) -> list[int]:
    """Whole budgets from real ones as the code makes them: cut to ``cap``, the excess spread evenly over the other
    layers, then what still differs from ``total`` likewise; a layer may end above ``cap``."""
    budgets = [int(entries) for entries in raw]
    excess = sum(max(0, entries - cap) for entries in budgets)
    budgets = [min(entries, cap) for entries in budgets]
    _spread(budgets, excess, cap)
    _spread(budgets, total - sum(budgets), cap)
    return budgets


def _spread(budgets: list[int], entries: int, cap: int) -> None:
    """Add ``entries`` (or take them away) in equal parts to the layers below ``cap``, the first ones the odd ones."""
    open_layers = [i for i, budget in enumerate(budgets) if entries < 0 or budget < cap]
    if not open_layers:
        return
    part, odd = divmod(abs(entries), len(open_layers))
    for number, i in enumerate(open_layers):
        budgets[i] = max(0, budgets[i] + (1 if entries > 0 else -1) * (part + (number < odd)))

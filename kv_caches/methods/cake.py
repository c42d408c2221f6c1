"""CAKE: layers whose window attention is spread out and changes over time get larger budgets.

Qin et al., "CAKE: Cascading and Adaptive KV Cache Eviction with Layer Preferences", ICLR 2025. Tokens are ranked
by the mean of their window attention plus gamma times its variance. Defaults tau1 = tau2 = 1 (the fallback where
the code has no table for a model), gamma 200, window 32, average pooling over 5. Checked against antgroup/cakekv
cake/utils.py and cake/model/modify_llama.py. ``paper`` turns preferences into budgets that spend floor(r N L);
``official`` rounds them as the code does, see cake_official.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attention import LayerView
from ..budgets import tokens_kept, total_budget, water_fill
from ..method import Method
from ..retention import Protected
from ..scorers import then_window
from ..statistics import PrefillStats

VARIANTS = ("paper", "official")


class Dynamics(NamedTuple):
    """What a window says of the keys before it: votes (G, N - w), entropy E and temporal variance U of the layer."""

    votes: Tensor
    entropy: Tensor
    variance: Tensor


@dataclass(frozen=True)
class WindowDynamics:
    """:class:`Dynamics` of every window of 1..size last rows, as the budget decides later which one is used.

    Over all query heads and keys j < N - w: vote = mean over rows + gamma var over rows, then the mean over the KV
    head's query heads; E = - sum of R ln(R + 1e-10), not renormalised; U = sum of var. Variances are unbiased.
    """

    size: int = 32
    gamma: float = 200.0
    name: str = "window dynamics"

    def collect(self, layer: LayerView) -> list[Dynamics]:
        n = layer.length
        window = min(self.size, max(1, n - 1))
        rows = layer.rows(torch.arange(n - window, n))
        disorder = -(rows.double() * (rows.double() + 1e-10).log()).sum(0)  # (window, N)
        found = []
        for w in range(1, window + 1):
            past = rows[:, -w:, : n - w]
            mean = past.mean(1)
            variance = (past - mean[:, None]).square().sum(1) / max(1, w - 1)
            votes = (mean + self.gamma * variance).unflatten(0, (layer.kv_heads, -1)).mean(1)
            found.append(Dynamics(votes, disorder[-w:, : n - w].sum(), variance.double().sum()))
        return found


@dataclass(frozen=True)
class DynamicVotes:
    """Votes, average pooled over ``kernel`` positions, the window above all."""

    statistic: WindowDynamics = WindowDynamics()
    kernel: int = 5

    def size(self, budget: int) -> int:
        """w at a budget of B entries per layer: capped at half of it."""
        return min(self.statistic.size, max(1, budget // 2))

    def dynamics(self, stats: PrefillStats, layer: int, budget: int) -> Dynamics:
        """Of the window used at budget B."""
        return stats.get(self.statistic, layer)[self.size(budget) - 1]

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        votes = self.dynamics(stats, layer, budget).votes
        return then_window(F.avg_pool1d(votes, self.kernel, 1, self.kernel // 2), stats.prompt.length)


@dataclass(frozen=True)
class Preference:
    """Past tokens of layer l in proportion to E_l^(1 / tau1) U_l^(1 / tau2), the window on top in every layer."""

    votes: DynamicVotes = DynamicVotes()
    tau1: float = 1.0
    tau2: float = 1.0

    def preferences(self, stats: PrefillStats, budget: int) -> list[float]:
        """One number per layer, larger for layers that need more."""
        found = [self.votes.dynamics(stats, layer, budget) for layer in range(stats.n_layers)]
        return [float(d.entropy ** (1 / self.tau1) * d.variance ** (1 / self.tau2)) for d in found]

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        n, layers, budget = stats.prompt.length, stats.n_layers, tokens_kept(retention, stats.prompt.length)
        window, total = self.votes.size(budget), total_budget(stats, retention)
        past = water_fill(self.preferences(stats, budget), total - layers * window, n - window, floor=0)
        return [window + entries for entries in past]


def build(variant: str) -> Method:
    """One set per KV head; the window is capped at half of B."""
    from .cake_official import OfficialPreference

    return Method(
        name="cake",
        paper="Qin et al., ICLR 2025",
        budget=Preference() if variant == "paper" else OfficialPreference(),
        scorer=DynamicVotes(),
        retention=Protected(),
        variant=variant,
        needs=frozenset({DynamicVotes().statistic}),
        exact_budget=variant == "paper",
        source="antgroup/cakekv cake/utils.py",
    )

"""Importance scores that several methods share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .statistics import PrefillStats, Statistic, WindowRows

WINDOW = WindowRows()
IN_WINDOW = 1000.0  # scores of window positions begin here, far above those of past ones


def then_window(past: Tensor, length: int) -> Tensor:
    """(S, N) from scores (S, N - w) of past positions: those in the window score above them all, later ones first."""
    recent = IN_WINDOW + torch.arange(length - past.shape[1], device=past.device)
    return torch.cat([past, recent.expand(past.shape[0], -1)], dim=1)


@dataclass(frozen=True)
class Measured:
    """The statistic itself, (G, N): one ranking per KV head."""

    statistic: Statistic

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        return stats.get(self.statistic, layer)


@dataclass(frozen=True)
class HeadMean:
    """Mean of a (H, N) statistic over all heads: one ranking for the layer."""

    statistic: Statistic

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        return stats.get(self.statistic, layer).mean(0, keepdim=True)


@dataclass(frozen=True)
class GroupMean:
    """Mean of a (H, N) statistic over the query heads that read one KV head: one ranking per KV head."""

    statistic: Statistic

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        return stats.get(self.statistic, layer).unflatten(0, (stats.kv_heads, -1)).mean(1)


@dataclass(frozen=True)
class Recency:
    """Later positions first."""

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        return torch.arange(stats.prompt.length, dtype=torch.float32)[None]


@dataclass(frozen=True)
class Random:
    """Uniform random order, fixed by the sample's tokens and the layer."""

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        return torch.rand(1, stats.prompt.length, generator=stats.prompt.generator(layer))


@dataclass(frozen=True)
class WindowVotes:
    """SnapKV: the last w queries vote for past keys, votes are pooled along the positions, the window stays.

    a[j] = mean over i >= N - w of A[i, j] for j < N - w, mean over the KV head's query heads, softmax over all N keys;
    then average or max pooling with zero padding counted (the paper sums over i: the same order). Positions in the
    window score above every vote, later ones first.

    Attributes:
        window: w. It must leave room in the budget B for past tokens, so w_eff = min(w, max(1, B // 2)) is used unless
            ``capped`` is False; then a window of B tokens or more means the last B tokens.
        kernel: odd pooling width. pooling: "avg" or "max".
    """

    window: int = 64
    kernel: int = 5
    pooling: str = "avg"
    capped: bool = True

    def size(self, budget: int) -> int:
        """w_eff at a budget of B entries per layer."""
        return min(self.window, max(1, budget // 2)) if self.capped else self.window

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        n = stats.prompt.length
        window = min(n, self.size(budget))
        votes = stats.get(WINDOW, layer)[:, -window:, : n - window].mean(1)  # (G, N - w)
        if votes.shape[1]:
            pool = F.avg_pool1d if self.pooling == "avg" else F.max_pool1d
            votes = pool(votes, self.kernel, stride=1, padding=self.kernel // 2)
        return then_window(votes, n)

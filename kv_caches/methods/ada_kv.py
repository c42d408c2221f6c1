"""Ada-KV: the heads of a layer share its budget as their votes fall, with a floor for each.

Feng et al., "Ada-KV: Optimizing KV Cache Eviction by Adaptive Budget Allocation for Efficient LLM Inference",
NeurIPS 2025 (arXiv 2407.11550). SnapKV's votes (window 32, max pooling over 7 positions); layers equal.
Checked against FFY0/AdaKV adaptive_snapkv/monkeypatch/snapkv_utils.py, which cuts alpha base to a whole
number, rounds each head by itself and so misses the layer's total by a few entries: that is ``official``. In
``paper`` the total is exact by largest remainder. Heads of unequal length are really gathered: memory falls
to the longest head of each layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..budgets import Uniform, tokens_kept, water_fill
from ..method import Method
from ..prompt import Prompt
from ..retention import top_by_tier
from ..scorers import IN_WINDOW, WINDOW, WindowVotes
from ..statistics import PrefillStats

VARIANTS = ("paper", "official")


@dataclass(frozen=True)
class HeadAdaptive:
    """Past budgets per KV head: n_h (1 - alpha) + alpha base, n_h the head's entries among the layer's G base best.

    Attributes:
        alpha: share of the equal budget ``base`` that every head has for sure.
    """

    alpha: float = 0.2

    def counts(self, past: Tensor, base: int) -> list[int]:
        """n_h of every head. past: (G, P) scores of all heads."""
        heads, width = past.shape
        best = top_by_tier(past.flatten(), None, heads * base)
        return torch.bincount(best // width, minlength=heads).tolist()

    def head_budgets(self, past: Tensor, base: int) -> list[int]:
        """Past entries of every head, G base in all. past: (G, P) scores of all heads."""
        heads, width = past.shape
        shares = [count * (1 - self.alpha) + self.alpha * base for count in self.counts(past, base)]
        return water_fill(shares, heads * base, width, floor=0)

    def keep(self, scores: Tensor, budget: int, prompt: Prompt) -> list[Tensor]:
        window = int((scores[0] >= IN_WINDOW).sum())  # it stays in every head
        past = self.head_budgets(scores[:, : prompt.length - window], budget - window)
        return [top_by_tier(row, None, entries + window) for row, entries in zip(scores, past)]


@dataclass(frozen=True)
class OfficialHeadAdaptive(HeadAdaptive):
    """round(n_h (1 - alpha) + floor(alpha base)), halves to even, for each head by itself: a few entries short."""

    def head_budgets(self, past: Tensor, base: int) -> list[int]:
        """Past entries of every head. past: (G, P) scores of all heads."""
        return [round(count * (1 - self.alpha) + int(base * self.alpha)) for count in self.counts(past, base)]


class OneCapacity:
    """B in every layer: the released code knows one capacity and hands no remainder on."""

    from_length: ClassVar[bool] = True

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        return [tokens_kept(retention, stats.prompt.length)] * stats.n_layers


def build(variant: str) -> Method:
    """alpha = 0.2 as in the repository's experiments."""
    official = variant == "official"
    return Method(
        name="ada_kv",
        paper="Feng et al., NeurIPS 2025",
        budget=OneCapacity() if official else Uniform(),
        scorer=WindowVotes(window=32, kernel=7, pooling="max"),
        retention=OfficialHeadAdaptive(alpha=0.2) if official else HeadAdaptive(alpha=0.2),
        variant=variant,
        needs=frozenset({WINDOW}),
        exact_budget=not official,
        source="FFY0/AdaKV adaptive_snapkv/monkeypatch/snapkv_utils.py",
    )

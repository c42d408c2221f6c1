"""ElasticCache: the least important entries leave, averaged into the nearest one that stays.

Liu et al., "Efficient Inference of Vision Instruction-Following Models with Elastic Cache", ECCV 2024.
Importance is the attention a key receives from all rows, head mean, one set per layer; the first 4 tokens and
the last stay. ``paper`` is that rule. ``official`` is liuzuyan/ElasticCache kv_cache.py to the letter, whose
selection is unrelated to importance: see elastic_cache_official.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..budgets import Uniform
from ..decode import FixedSlot
from ..merging import Merging, leaving
from ..method import Method
from ..prompt import Prompt
from ..retention import Protected
from ..scorers import HeadMean
from ..statistics import ColumnSums, PrefillStats

COLUMNS = ColumnSums()
VARIANTS = ("paper", "official")


@dataclass(frozen=True)
class AtLeast:
    """Equal budgets, but never fewer than the protected tokens: on tiny prompts the achieved share is larger."""

    protected: int = 5
    from_length: ClassVar[bool] = True

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        smallest = min(self.protected, stats.prompt.length)
        return [max(smallest, budget) for budget in Uniform().allocate(stats, retention)]


def nearest_kept(positions: Tensor, kept: Tensor) -> Tensor:
    """The nearest of ``kept`` (ascending) for each position; a tie goes to the lower one."""
    right = torch.searchsorted(kept, positions)
    below, above = kept[(right - 1).clamp(min=0)], kept[right.clamp(max=kept.numel() - 1)]
    return torch.where((positions - below).abs() <= (above - positions).abs(), below, above)


@dataclass(frozen=True)
class MergeIntoNearest:
    """Every entry that leaves is averaged into the nearest kept one that is not protected."""

    sinks: int = 4

    def merge(self, kept: Tensor, keys: Tensor, prompt: Prompt) -> Merging:
        middle = kept[self.sinks : -1]
        gone = leaving(kept, prompt.length)
        if not middle.numel():
            return Merging(gone[:0], gone[:0])  # only protected tokens stay: nothing to merge into
        return Merging(gone, nearest_kept(gone, middle))


def build(variant: str) -> Method:
    """F = N - b entries leave per layer; while decoding one fixed slot goes whenever the share is exceeded."""
    if variant == "official":
        from .elastic_cache_official import build_official

        return build_official()
    return Method(
        name="elastic_cache",
        paper="Liu et al., ECCV 2024",
        budget=AtLeast(5),
        scorer=HeadMean(COLUMNS),
        retention=Protected(sinks=4, last=1),
        variant=variant,
        needs=frozenset({COLUMNS}),
        decode_rule=FixedSlot(),
        merge=MergeIntoNearest(),
        source="liuzuyan/ElasticCache kv_cache.py",
    )

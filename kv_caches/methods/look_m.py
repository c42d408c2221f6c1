"""LOOK-M: H2O with text before image, and what leaves is merged into the most similar entry that stays.

Wan et al., "LOOK-M: Look-Once Optimization in KV Cache for Efficient Multimodal Long-Context Inference",
Findings of EMNLP 2024. A tenth of the budget is recent tokens, text or image; the rest goes to text first, both
kinds by accumulated attention. Pivot merging: an evicted entry goes halfway to the kept key it is most similar
to before the mean. Checked against EffiVLM-Bench/EffiVLM-Bench kv_cache_compression/kv_cache_utils.py
(LOOK_MCluster; selection), which floors both parts of the budget; here the parts add up to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attention import BLOCK_ELEMENTS
from ..budgets import Uniform
from ..merging import Merging, leaving
from ..method import Method
from ..prompt import Prompt
from ..retention import Protected
from ..scorers import GroupMean
from ..statistics import ColumnSums

VARIANTS = ("paper",)


class RecentThenText:
    """The last max(1, floor(b / 10)) tokens, then text, then vision, each by score."""

    def keep(self, scores: Tensor, budget: int, prompt: Prompt) -> list[Tensor]:
        return Protected(last=max(1, budget // 10), text_first=True).keep(scores, budget, prompt)


@dataclass(frozen=True)
class MergeIntoMostSimilar:
    """Every entry that leaves goes to the kept one whose key has the largest cosine with its own."""

    pivot: float = 0.5

    def merge(self, kept: Tensor, keys: Tensor, prompt: Prompt) -> Merging:
        kept = kept.to(keys.device)
        gone = leaving(kept, prompt.length)
        directions = F.normalize(keys.float(), dim=-1).transpose(0, 1).flatten(1)  # (N, g d)
        targets = directions[kept].T
        blocks = gone.split(max(1, BLOCK_ELEMENTS // kept.numel()))
        nearest = [(directions[block] @ targets).argmax(-1) for block in blocks]
        return Merging(gone, kept[torch.cat(nearest)], self.pivot)


def build(variant: str) -> Method:
    """One set per KV head; keys decide the merging of values, too."""
    columns = ColumnSums()
    return Method(
        name="look_m",
        paper="Wan et al., Findings of EMNLP 2024",
        budget=Uniform(),
        scorer=GroupMean(columns),
        retention=RecentThenText(),
        variant=variant,
        needs=frozenset({columns}),
        merge=MergeIntoMostSimilar(),
        source="EffiVLM-Bench/EffiVLM-Bench kv_cache_compression/kv_cache_utils.py",
    )

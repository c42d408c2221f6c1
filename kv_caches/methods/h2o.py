"""H2O: half the budget for the heavy hitters of accumulated attention, half for the most recent tokens.

Zhang et al., "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models", NeurIPS
2023. Checked against FMInference/H2O h2o_hf/utils_real_drop/modify_llama.py, the code that really drops
entries; the masking simulator in the same repository hides one prompt token more. Under GQA the sums of a KV
head's query heads are averaged (Zefan-Cai/KVCache-Factory pyramidkv/pyramidkv_utils.py, kv_head mode).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..budgets import Uniform
from ..method import Method
from ..prompt import Prompt
from ..retention import top_by_tier
from ..scorers import GroupMean
from ..statistics import ColumnSums, PrefillStats

ACCUMULATED = GroupMean(ColumnSums())  # sum over all rows i of A[i, j], not averaged


def heavy_and_recent(scores: Tensor, budget: int) -> Tensor:
    """The last ceil(b / 2) positions, and the b - ceil(b / 2) best of those before."""
    tiers = torch.zeros(scores.numel(), dtype=torch.long)
    tiers[scores.numel() - (budget - budget // 2) :] = 1
    return top_by_tier(scores, tiers, budget)


class HeavyRecent:
    """Heavy hitters and recent tokens, per KV head."""

    def keep(self, scores: Tensor, budget: int, prompt: Prompt) -> list[Tensor]:
        return [heavy_and_recent(row, budget) for row in scores]


class AccumulateAndDrop:
    """Per step and KV head: the new row joins the running sums of the surviving slots, then the same choice again at
    the same size, so that one entry leaves for each that comes."""

    name: ClassVar[str] = "heavy hitters"

    def begin(self, stats: PrefillStats, layer: int, kept: list[Tensor], retention: float) -> list[Tensor] | None:
        if kept[0].numel() == stats.prompt.length:
            return None  # the whole prompt fits
        scores = ACCUMULATED.score(stats, layer, 0)
        return [row[index] for row, index in zip(scores, kept)]

    def evict(self, state: list[Tensor], attention: list[Tensor]) -> list[Tensor] | None:
        leaving = []
        for i, rows in enumerate(attention):
            budget, sums = state[i].numel(), rows.mean(0)
            sums[:budget] += state[i].to(sums.device)
            stay = heavy_and_recent(sums, budget)
            state[i] = sums[stay]
            leaving.append(stay)
        return leaving


VARIANTS = ("paper",)


def build(variant: str) -> Method:
    """heavy = recent = b / 2; with an odd budget recent gets the extra entry."""
    return Method(
        name="h2o",
        paper="Zhang et al., NeurIPS 2023",
        budget=Uniform(),
        scorer=ACCUMULATED,
        retention=HeavyRecent(),
        variant=variant,
        needs=frozenset({ACCUMULATED.statistic}),
        decode_rule=AccumulateAndDrop(),
        source="FMInference/H2O h2o_hf/utils_real_drop/modify_llama.py",
    )

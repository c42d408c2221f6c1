"""Observed attention: what stays received most attention per query row that could see it.

The H2O-like control of NVIDIA/kvpress, kvpress/presses/observed_attention_press.py. The division ranks late
tokens higher than H2O's plain sums do. ``paper`` protects neither the first tokens nor the last one, which it
does drop; ``last_token`` the last one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..budgets import Uniform
from ..method import Method
from ..retention import Protected
from ..scorers import GroupMean
from ..statistics import ColumnSums, PrefillStats

VARIANTS = ("paper", "last_token")


@dataclass(frozen=True)
class MeanReceived(GroupMean):
    """sum over i of A[i, j] / (N - j), mean over the KV head's query heads: (G, N)."""

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        sums = super().score(stats, layer, budget)
        return sums / torch.arange(sums.shape[1], 0, -1, device=sums.device)


def build(variant: str) -> Method:
    """The b best per KV head."""
    columns = ColumnSums()
    return Method(
        name="observed_attention",
        paper="control of kvpress (after Zhang et al., NeurIPS 2023)",
        budget=Uniform(),
        scorer=MeanReceived(columns),
        retention=Protected(last=int(variant == "last_token")),
        variant=variant,
        needs=frozenset({columns}),
        source="NVIDIA/kvpress kvpress/presses/observed_attention_press.py",
    )

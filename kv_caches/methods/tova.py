"""TOVA: keep what the last token attends to, mean over all heads; while decoding the least attended entry
leaves.

Oren et al., "Transformers are Multi-State RNNs", EMNLP 2024. Checked against NVIDIA/kvpress
kvpress/presses/tova_press.py. The newest token always stays.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..budgets import Uniform
from ..method import Method
from ..retention import Protected, top_by_tier
from ..scorers import HeadMean
from ..statistics import LastRow, PrefillStats

LAST = LastRow()
VARIANTS = ("paper",)


class DropLeastAttended:
    """The size of the cache stays what it was after the prompt."""

    name: ClassVar[str] = "least attended"

    def begin(self, stats: PrefillStats, layer: int, kept: list[Tensor], retention: float) -> int | None:
        """The size, or None when the whole prompt fits."""
        return None if kept[0].numel() == stats.prompt.length else kept[0].numel()

    def evict(self, state: int, attention: list[Tensor]) -> list[Tensor] | None:
        row = attention[0].mean(0)
        newest = torch.zeros(row.numel(), dtype=torch.long)
        newest[-1] = 1
        return [top_by_tier(row, newest, state)]


def build(variant: str) -> Method:
    """The best b - 1 by A[N - 1, j] and the last token; one set per layer."""
    return Method(
        name="tova",
        paper="Oren et al., EMNLP 2024",
        budget=Uniform(),
        scorer=HeadMean(LAST),
        retention=Protected(last=1),
        variant=variant,
        needs=frozenset({LAST}),
        decode_rule=DropLeastAttended(),
        source="NVIDIA/kvpress kvpress/presses/tova_press.py",
    )

"""Decode-time eviction that several methods share: what leaves when a generated token arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .statistics import PrefillStats


@dataclass
class SlotState:
    """One layer: the slot that goes, the share of all tokens it may hold, and tokens seen so far."""

    slot: int
    share: float
    seen: int


@dataclass(frozen=True)
class FixedSlot:
    """Whenever a layer holds at least one entry more than its share of all tokens seen: drop one fixed slot.

    The slot lies ``distance`` from the end of the pruned prompt, or in its middle when that is outside. Rule of
    ElasticCache and PrefixKV (THU-MIG/PrefixKV prefixkv.py).
    """

    distance: int = 25
    name: ClassVar[str] = "fixed slot"

    def share(self, stats: PrefillStats, layer: int, kept: list[Tensor], retention: float) -> float:
        """Share of all tokens seen, prompt and generated, that the layer may hold."""
        return retention

    def begin(self, stats: PrefillStats, layer: int, kept: list[Tensor], retention: float) -> SlotState:
        held = kept[0].numel()
        slot = held - self.distance if held - self.distance >= 1 else held // 2
        return SlotState(slot, self.share(stats, layer, kept, retention), stats.prompt.length)

    def evict(self, state: SlotState, attention: list[Tensor]) -> list[Tensor] | None:
        state.seen += 1
        held = attention[0].shape[-1]
        if held - state.seen * state.share < 1 - 1e-9:
            return None
        slots = torch.arange(held)
        return [slots[slots != state.slot]]

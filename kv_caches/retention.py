"""Which positions stay, given scores and a budget: one ranking (tier, score, position) shared by every method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .prompt import Prompt


def top_by_tier(scores: Tensor, tiers: Tensor | None, budget: int) -> Tensor:
    """The ``budget`` best positions: higher tier first, then higher score, then lower position.

    Args:
        scores: (N,) float. tiers: (N,) int, or None when all positions are in one tier.

    Returns:
        (min(budget, N),) positions in ascending order.
    """
    order = torch.sort(scores.float(), descending=True, stable=True).indices
    if tiers is not None:
        tiers = tiers.to(scores.device)
        order = order[torch.sort(tiers[order], descending=True, stable=True).indices]
    return order[:budget].sort().values


class Retention(Protocol):
    """What stays regardless, and how the rest is chosen."""

    def keep(self, scores: Tensor, budget: int, prompt: Prompt) -> list[Tensor]:
        """Kept positions for scores (S, N): a list of S ascending index tensors (S = 1 or the number of KV heads)."""
        ...


@dataclass(frozen=True)
class Protected:
    """Always keep the first ``sinks`` and the last ``last`` tokens, then the best of the rest.

    Attention sinks: Xiao et al., StreamingLLM, ICLR 2024. With less room than protected tokens, the last token stays
    first, then the sinks in order. ``text_first`` ranks every text token above every vision token, ``vision_first``
    the other way round.
    """

    sinks: int = 0
    last: int = 0
    text_first: bool = False
    vision_first: bool = False

    def tiers(self, prompt: Prompt) -> Tensor:
        """(N,) int tiers: 1 for the kind of token that has priority, 0 for others, higher for protected tokens."""
        n = prompt.length
        first = ~prompt.is_vision if self.text_first else prompt.is_vision
        tiers = first.long() * int(self.text_first or self.vision_first)
        sinks = min(self.sinks, n)
        tiers[:sinks] = 2 + torch.arange(sinks, 0, -1)
        if self.last:
            tiers[-self.last :] = self.sinks + 3
        return tiers

    def keep(self, scores: Tensor, budget: int, prompt: Prompt) -> list[Tensor]:
        tiers = self.tiers(prompt)
        return [top_by_tier(row, tiers, budget) for row in scores]

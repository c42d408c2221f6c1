"""Entries that leave the cache live on in entries that stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from .prompt import Prompt


class Merging(NamedTuple):
    """Who goes where in one set of positions.

    Attributes:
        leaving: (T,) positions. into: (T,) the kept position that takes up each.
        pivot: share of the taker in what it takes: the entry sent to k is (1 - pivot) k_leaving + pivot k.
    """

    leaving: Tensor
    into: Tensor
    pivot: float = 0.0

    def shifted(self, offset: int) -> Merging:
        """The same where every position is ``offset`` higher, as in a padded row."""
        return self._replace(leaving=self.leaving + offset, into=self.into + offset)


class Merge(Protocol):
    """What happens to the entries that leave, when they are not simply dropped."""

    def merge(self, kept: Tensor, keys: Tensor, prompt: Prompt) -> Merging:
        """Keys and values alike: k becomes the mean of itself and of what is sent to it, before the eviction.

        Args:
            kept: (b,) ascending positions of one set. keys: (g, N, d) of the KV heads that share it, after RoPE.
        """
        ...


def leaving(kept: Tensor, length: int) -> Tensor:
    """Ascending positions of 0..length - 1 that are not kept."""
    gone = torch.ones(length, dtype=torch.bool, device=kept.device)
    gone[kept] = False
    return gone.nonzero().flatten()


def merged(states: Tensor, merges: Sequence[Merging]) -> Tensor:
    """Keys or values (G, S, d) with some slots averaged into others; one merging for all KV heads or one for each."""
    parts = states.split(states.shape[0] // len(merges))
    return torch.cat([_merged(part, *merging) for part, merging in zip(parts, merges)])


def _merged(states: Tensor, leaving: Tensor, into: Tensor, pivot: float) -> Tensor:
    if not leaving.numel():
        return states
    leaving, into = leaving.to(states.device), into.to(states.device)
    count = torch.ones(states.shape[1], 1, device=states.device)
    count = count.index_add(0, into, count[leaving])
    old = states.float()
    sent = torch.lerp(old[:, leaving], old[:, into], pivot) if pivot else old[:, leaving]
    return (old.index_add(1, into, sent) / count).to(states.dtype)

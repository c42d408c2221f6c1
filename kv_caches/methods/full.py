"""Full cache: every entry stays, through the same gather path, to prove that the path loses nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from ..budgets import Uniform
from ..method import Method
from ..retention import Protected
from ..statistics import PrefillStats


class NoScore:
    """All positions equal."""

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        return torch.zeros(1, stats.prompt.length)


def full(variant: str) -> Method:
    """The reference every method is compared with; retention is always 1."""
    return Method("full", "-", Uniform(), NoScore(), Protected())


VARIANTS = ("paper",)
build = full

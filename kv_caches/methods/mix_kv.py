"""MixKV: SnapKV's votes and value norms, mixed head by head with how unlike the other keys a key is.

Liu, Gui, Zhang, Zhang, "MixKV" (arXiv 2510.20707, 2025), on SnapKV with equal budgets; window 32, average
pooling over 5. Checked against xuyang-liu16/MixKV mixkv/mixkv_utils.py (headwisemixkv). That code reads each
head's mix from a file measured on one Qwen model, for every model; here it is the prompt's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attention import LayerView
from ..budgets import Uniform
from ..method import Method
from ..retention import Protected
from ..scorers import WINDOW, WindowVotes
from ..statistics import PrefillStats

VARIANTS = ("paper",)
VOTES = WindowVotes(window=32, kernel=5, pooling="avg")


class KeysAndValues(NamedTuple):
    """Per KV head: k_j / |k_j| times the mean direction (G, N), |v_j| (G, N), mean cosine of two keys (G,)."""

    likeness: Tensor
    value_norms: Tensor
    cosine: Tensor


@dataclass(frozen=True)
class Diversity:
    """How alike the keys are, after RoPE, without comparing any two: the mean off-diagonal cosine is
    (N |a|^2 - 1) / (N - 1) with a the mean direction."""

    name: str = "key directions, value norms"

    def collect(self, layer: LayerView) -> KeysAndValues:
        directions, n = F.normalize(layer.keys.float(), dim=-1), layer.length
        mean = directions.mean(1, keepdim=True)
        cosine = (n * mean.square().sum((1, 2)) - 1) / max(1, n - 1)
        return KeysAndValues((directions * mean).sum(-1), layer.values.float().norm(dim=-1), cosine)


DIVERSITY = Diversity()


def rescaled(x: Tensor, scores: Tensor) -> Tensor:
    """x (G, P) stretched to [0, 1] per head, then given the mean of ``scores``."""
    low, high = x.aminmax(dim=-1, keepdim=True)
    x = (x - low) / (high - low).clamp(min=1e-8)
    return x * scores.mean(-1, keepdim=True) / (x.mean(-1, keepdim=True) + 1e-8)


@dataclass(frozen=True)
class Mixed:
    """m D + (1 - m) (s + U) over past keys: s votes, U value norms and D unlikeness, both rescaled to s.

    Attributes:
        head_mix: m of every KV head; None takes the head's mean key cosine, clipped to [0, 1].
    """

    votes: WindowVotes = VOTES
    head_mix: tuple[float, ...] | None = None

    def size(self, budget: int) -> int:
        """w at a budget of B entries per layer."""
        return self.votes.size(budget)

    def mix(self, stats: PrefillStats, layer: int) -> Tensor:
        """(G, 1)."""
        cosine = stats.get(DIVERSITY, layer).cosine
        return (cosine.clamp(0, 1) if self.head_mix is None else cosine.new_tensor(self.head_mix))[:, None]

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        scores, found = self.votes.score(stats, layer, budget), stats.get(DIVERSITY, layer)
        past = slice(0, stats.prompt.length - self.size(budget))
        votes, mix = scores[:, past], self.mix(stats, layer)
        important = votes + rescaled(found.value_norms[:, past], votes)
        unlike = rescaled(-found.likeness[:, past], votes)
        return torch.cat([mix * unlike + (1 - mix) * important, scores[:, past.stop :]], dim=1)


def build(variant: str) -> Method:
    """One set per KV head, equal budgets."""
    return Method(
        name="mix_kv",
        paper="Liu et al., arXiv 2510.20707 (2025)",
        budget=Uniform(),
        scorer=Mixed(),
        retention=Protected(),
        variant=variant,
        needs=frozenset({WINDOW, DIVERSITY}),
        source="xuyang-liu16/MixKV mixkv/mixkv_utils.py",
    )

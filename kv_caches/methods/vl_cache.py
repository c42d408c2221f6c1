"""VL-Cache: tokens ranked by the attention of the text behind the image; dense layers get larger budgets.

Tu et al., "VL-Cache: Sparsity and Modality-Aware KV Cache Compression for Vision-Language Model Inference
Acceleration", ICLR 2025. A tenth of the budget is the last tokens in every layer; nine tenths are spread over the
layers as the density of post-vision attention says. Checked against EffiVLM-Bench/EffiVLM-Bench
kv_cache_compression/kv_cache_utils.py (VlCacheKVCluster). ``paper`` spends floor(r N L); ``official`` clips and
floors each layer as that code does and hands nothing on. Where no row follows the last vision token, the last
row speaks; without vision all rows do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..attention import LayerView
from ..budgets import tokens_kept, total_budget, water_fill
from ..method import Method
from ..prompt import Prompt
from ..retention import Protected
from ..scorers import then_window
from ..statistics import PrefillStats

VARIANTS = ("paper", "official")


class PostVisionAttention(NamedTuple):
    """Mean attention each key receives from the rows, per KV head (G, N), and the share of entries that matter."""

    received: Tensor
    density: Tensor


@dataclass(frozen=True)
class PostVision:
    """Rows behind the last vision token.

    Attributes:
        share: an entry matters if it is at least this share of its own row's largest.
    """

    share: float = 0.01
    name: str = "post-vision rows"

    def rows(self, prompt: Prompt) -> Tensor:
        """Positions of the rows, ascending, never none."""
        first = int(prompt.vision[-1]) + 1 if prompt.vision.numel() else 0
        return torch.arange(min(first, prompt.length - 1), prompt.length)

    def collect(self, layer: LayerView) -> PostVisionAttention:
        index = self.rows(layer.prompt)
        received = torch.zeros(layer.heads, layer.length, device=layer.keys.device)
        matter = torch.zeros((), device=layer.keys.device)
        for heads, _, rows in layer.tiles(index):
            received[heads, : rows.shape[-1]] += rows.sum(1)
            matter += (rows >= self.share * rows.amax(-1, keepdim=True)).sum()
        received = received.unflatten(0, (layer.kv_heads, -1)).mean(1) / index.numel()
        return PostVisionAttention(received, matter / (layer.heads * int((index + 1).sum())))


POST_VISION = PostVision()


def window_of(budget: int) -> int:
    """A tenth of B, at least one token."""
    return max(1, budget // 10)


@dataclass(frozen=True)
class PostVisionVotes:
    """Attention of the rows behind the image, the window above all."""

    def size(self, budget: int) -> int:
        """w at a budget of B entries per layer."""
        return window_of(budget)

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        n = stats.prompt.length
        return then_window(stats.get(POST_VISION, layer).received[:, : n - window_of(budget)], n)


class Density:
    """Past tokens of a layer in proportion to its density, the window on top in every layer."""

    def shares(self, stats: PrefillStats) -> list[float]:
        """Each layer's part of the density of all."""
        densities = [float(stats.get(POST_VISION, layer).density) for layer in range(stats.n_layers)]
        return [density / sum(densities) for density in densities]

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        n, layers = stats.prompt.length, stats.n_layers
        window = window_of(tokens_kept(retention, n))
        past = water_fill(self.shares(stats), total_budget(stats, retention) - layers * window, n - window, floor=0)
        return [window + entries for entries in past]


class OfficialDensity(Density):
    """beta = clip(share 0.9 r L, 0.009, 1) of the tokens, floored, at least one."""

    def ratios(self, stats: PrefillStats, retention: float) -> list[float]:
        """beta of every layer."""
        mean = 0.9 * retention * stats.n_layers
        return [min(1.0, max(0.009, share * mean)) for share in self.shares(stats)]

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        n = stats.prompt.length
        window = window_of(tokens_kept(retention, n))
        past = [max(1, int(ratio * n)) for ratio in self.ratios(stats, retention)]
        return [min(n, window + entries) for entries in past]


def build(variant: str) -> Method:
    """One set per KV head."""
    return Method(
        name="vl_cache",
        paper="Tu et al., ICLR 2025",
        budget=Density() if variant == "paper" else OfficialDensity(),
        scorer=PostVisionVotes(),
        retention=Protected(),
        variant=variant,
        needs=frozenset({POST_VISION}),
        exact_budget=variant == "paper",
        source="EffiVLM-Bench/EffiVLM-Bench kv_cache_compression/kv_cache_utils.py",
    )

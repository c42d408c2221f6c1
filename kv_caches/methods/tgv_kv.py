"""TGV-KV: layers where text looks harder at the image get more room, text rows rank the vision, text stays first.

Liu et al., "TGV-KV: Text-Grounded KV Eviction for Vision-Language Models", ICML 2026 (arXiv 2606.03075).
Checked against Danielement321/TGV-KV kv_caches/tgv_kv.py. A is the head-mean of the full softmax over all keys; T and V
are the text and vision positions. The paper's Eq. 6 as printed normalises over vision keys only, which would make every
layer's mass equal; its text and the released code slice the full softmax, and so does this file.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..budgets import total_budget, water_fill
from ..method import Method
from ..retention import Protected
from ..statistics import LastRow, PrefillStats, Statistic, TextGrounding

TEXT_ROWS = TextGrounding()
LAST = LastRow()
VARIANTS = ("paper", "protected", "official", "official_bf16")


class TextVisionBudget:
    """TVB: a layer's share is its text-to-vision mass, m_l = sum over i in T, j in V of A[l, i, j]."""

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        vision = stats.prompt.vision
        received = (stats.get(TEXT_ROWS, layer).received for layer in range(stats.n_layers))
        mass = [float(r[vision.to(r.device)].double().sum()) for r in received]
        return water_fill(mass, total_budget(stats, retention), stats.prompt.length)


class TextWeightedRanking:
    """TWR: s_j = sum over a in T of w_a A[a, j] for vision, w_a the share of dominance of text row a
    (the mean attention it gets from text rows that see it); text itself by the attention it gets from text.
    When no text row sees the image (image last), vision is ranked by the last row instead.
    """

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        prompt, text = stats.prompt, stats.get(TEXT_ROWS, layer)
        if prompt.vision.numel() and prompt.text.numel() and prompt.vision[0] < prompt.text[-1]:
            vision_score = text.weighted / text.weight
        else:
            vision_score = stats.get(LAST, layer).mean(0)
        return torch.where(prompt.is_vision.to(text.received.device), vision_score, text.received)[None]


@dataclass(frozen=True)
class TextPriority(Protected):
    """TPR: no text entry leaves while a vision entry stays."""

    text_first: bool = True


def build(variant: str) -> Method:
    """``paper`` is the formulas; ``protected`` adds 4 sinks and the last token inside the same budget;
    ``official`` is the released code to the letter (see tgv_kv_official.py)."""
    if variant.startswith("official"):
        from .tgv_kv_official import build_official

        return build_official(variant)
    keep = TextPriority(sinks=4, last=1) if variant == "protected" else TextPriority()
    paper = "Liu et al., ICML 2026"
    needs: frozenset[Statistic] = frozenset({TEXT_ROWS, LAST})
    source = "Danielement321/TGV-KV kv_caches/tgv_kv.py"
    return Method("tgv_kv", paper, TextVisionBudget(), TextWeightedRanking(), keep, variant, needs, source=source)

"""Expected attention: future queries are modelled as Gaussian; keys they will attend to, weighted by values,
stay.

Devoto et al., "Expected Attention: KV Cache Compression by Estimating Attention from Future Queries
Distribution", arXiv 2510.00636 (2025). Checked against NVIDIA/kvpress
kvpress/presses/expected_attention_press.py. Queries are taken after q_norm and before RoPE; future positions
follow the last prompt token on all axes of M-RoPE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attention import LayerView
from ..budgets import Uniform
from ..method import Method
from ..retention import Protected
from ..rope import later, rotate, unrotate
from ..scorers import Measured

VARIANTS = ("paper",)


@dataclass(frozen=True)
class ExpectedAttention:
    """softmax over j of (mu' k_j s + k_j' Sigma' k_j s^2 / 2), mean over the KV head's query heads, times ||v_j||.

    mu and Sigma are those of the queries without the first ``sinks``; mu' and Sigma' are turned by the mean rotation of
    the ``future`` next positions; s is the logits' scale. The first ``sinks`` keys score above all. (G, N).
    """

    sinks: int = 4
    future: int = 512
    name: str = "query moments"
    module_inputs: ClassVar[bool] = True

    def collect(self, layer: LayerView) -> Tensor:
        if layer.length <= self.sinks:
            return torch.zeros(layer.kv_heads, layer.length)
        assert layer.rotary is not None
        cos, sin = (table[self.sinks :].float() for table in layer.rotary)
        queries = unrotate(layer.queries[:, self.sinks :].float(), cos, sin)
        turn = self.mean_rotation(layer)
        mean = queries.mean(1)
        expected = self.expect(layer, mean @ turn.T, turn @ self._covariance(queries, mean) @ turn.T)
        return F.pad(expected, (self.sinks, 0), value=float(expected.max()) + 1)

    def mean_rotation(self, layer: LayerView) -> Tensor:
        """(d, d): mean of the rotations at the next positions."""
        cos, sin = (table.mean(0) for table in later(layer, torch.arange(1, self.future + 1)))
        return rotate(torch.eye(cos.numel(), device=cos.device), cos, sin).T

    def expect(self, layer: LayerView, mean: Tensor, covariance: Tensor) -> Tensor:
        """(G, N - sinks) scores for query means (H, d) and covariances (H, d, d)."""
        keys, scores = layer.keys[:, self.sinks :].float(), []
        for head, key in enumerate(keys):
            group = slice(head * layer.heads // layer.kv_heads, (head + 1) * layer.heads // layer.kv_heads)
            spread = ((key @ covariance[group]) * key).sum(-1)  # (g, N - sinks)
            logits = mean[group] @ key.T * layer.scaling + spread * layer.scaling**2 / 2
            scores.append(logits.softmax(-1).mean(0))
        return torch.stack(scores) * layer.values[:, self.sinks :].float().norm(dim=-1)

    @staticmethod
    def _covariance(queries: Tensor, mean: Tensor) -> Tensor:
        centred = queries - mean[:, None]
        return centred.transpose(1, 2) @ centred / queries.shape[1]


def build(variant: str) -> Method:
    """The b best per KV head, the first 4 tokens among them."""
    expected = ExpectedAttention()
    return Method(
        name="expected_attention",
        paper="Devoto et al., arXiv 2510.00636 (2025)",
        budget=Uniform(),
        scorer=Measured(expected),
        retention=Protected(),
        variant=variant,
        needs=frozenset({expected}),
        source="NVIDIA/kvpress kvpress/presses/expected_attention_press.py",
    )

"""K-norm: keys with a small norm attract attention, so they stay. Reads keys only.

Devoto et al., "A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression", EMNLP 2024. Checked
against NVIDIA/kvpress kvpress/presses/knorm_press.py. ``paper`` protects neither the first tokens nor the
last one, ``last_token`` the last one. Where a model normalises its keys (Qwen3-VL), norms differ only by the
weights of that normalisation.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..attention import LayerView
from ..budgets import Uniform
from ..method import Method
from ..retention import Protected
from ..scorers import Measured

VARIANTS = ("paper", "last_token")


@dataclass(frozen=True)
class NegativeKeyNorm:
    """-||k_j|| per KV head, keys after RoPE: (G, N)."""

    name: str = "key norms"

    def collect(self, layer: LayerView) -> Tensor:
        return -layer.keys.float().norm(dim=-1)


def build(variant: str) -> Method:
    """The b smallest norms per KV head."""
    norms = NegativeKeyNorm()
    return Method(
        name="knorm",
        paper="Devoto et al., EMNLP 2024",
        budget=Uniform(),
        scorer=Measured(norms),
        retention=Protected(last=int(variant == "last_token")),
        variant=variant,
        needs=frozenset({norms}),
        source="NVIDIA/kvpress kvpress/presses/knorm_press.py",
    )

"""KeyDiff: keys unlike the average key stay. Reads keys only.

Park et al., "KeyDiff: Key Similarity-Based KV Cache Eviction for Long-Context LLM Inference in
Resource-Constrained Environments", arXiv 2504.15364 (2025). Checked against NVIDIA/kvpress
kvpress/presses/keydiff_press.py (the whole prompt at once; the paper goes block by block). ``paper`` protects
neither the first tokens nor the last one, ``last_token`` the last one.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from ..attention import LayerView
from ..budgets import Uniform
from ..method import Method
from ..retention import Protected
from ..scorers import Measured

VARIANTS = ("paper", "last_token")


@dataclass(frozen=True)
class KeyDifference:
    """-cos(k_j, mean over j of k_j / ||k_j||) per KV head, keys after RoPE: (G, N)."""

    name: str = "key directions"

    def collect(self, layer: LayerView) -> Tensor:
        directions = F.normalize(layer.keys.float(), dim=-1)
        return -F.cosine_similarity(directions, directions.mean(1, keepdim=True), dim=-1)


def build(variant: str) -> Method:
    """The b most different keys per KV head."""
    difference = KeyDifference()
    return Method(
        name="keydiff",
        paper="Park et al., arXiv 2504.15364 (2025)",
        budget=Uniform(),
        scorer=Measured(difference),
        retention=Protected(last=int(variant == "last_token")),
        variant=variant,
        needs=frozenset({difference}),
        source="NVIDIA/kvpress kvpress/presses/keydiff_press.py",
    )

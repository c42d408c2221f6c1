"""Random control of the TGV-KV paper's Table 1c: text stays before any vision does, random within each.

Liu et al., "TGV-KV", ICML 2026. The draw depends on the sample's tokens and the layer only.
"""

from __future__ import annotations

from ..budgets import Uniform
from ..method import Method
from ..retention import Protected
from ..scorers import Random

VARIANTS = ("plain",)


def build(variant: str) -> Method:
    """All text tokens when they fit, then random vision tokens; else random text tokens only."""
    paper = "control (Liu et al., ICML 2026, Table 1c)"
    return Method("random_text_first", paper, Uniform(), Random(), Protected(text_first=True), variant)

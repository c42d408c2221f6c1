"""Random control: any method has to beat it at the same budget.

``plain`` keeps uniformly random positions, ``protected`` the first 4 tokens and the last one as well. The
draw depends on the sample's tokens and the layer only, so it is the same in every batch, process and run.
"""

from __future__ import annotations

from ..budgets import Uniform
from ..method import Method
from ..retention import Protected
from ..scorers import Random

VARIANTS = ("plain", "protected")


def build(variant: str) -> Method:
    """One random set per layer."""
    keep = Protected(sinks=4, last=1) if variant == "protected" else Protected()
    return Method("random", "control", Uniform(), Random(), keep, variant)

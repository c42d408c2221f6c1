"""SnapKV: the last prompt queries vote for the keys they attend to; clusters of votes and the window stay.

Li et al., "SnapKV: LLM Knows What You are Looking for Before Generation", NeurIPS 2024. Window 64, average
pooling over 5 positions, budgets equal, one set per KV head. Checked against FasterDecoding/SnapKV
snapkv/monkeypatch/snapkv_utils.py, whose code requires a budget above the window; ``paper`` caps the window
at half the budget, ``literal`` keeps 64 as the TGV-KV paper does and so keeps nothing but the last tokens
when the budget is small.
"""

from __future__ import annotations

from ..budgets import Uniform
from ..method import Method
from ..retention import Protected
from ..scorers import WINDOW, WindowVotes

VARIANTS = ("paper", "literal")


def build(variant: str) -> Method:
    """See :class:`kv_caches.scorers.WindowVotes` for the formula."""
    return Method(
        name="snapkv",
        paper="Li et al., NeurIPS 2024",
        budget=Uniform(),
        scorer=WindowVotes(window=64, kernel=5, pooling="avg", capped=variant == "paper"),
        retention=Protected(),
        variant=variant,
        needs=frozenset({WINDOW}),
        source="FasterDecoding/SnapKV snapkv/monkeypatch/snapkv_utils.py",
    )

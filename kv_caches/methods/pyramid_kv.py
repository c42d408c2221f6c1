"""PyramidKV: SnapKV's votes, with budgets that fall linearly with depth.

Cai et al., "PyramidKV: Dynamic KV Cache Compression based on Pyramidal Information Funneling", COLM 2025
(arXiv 2406.02069). Checked against Zefan-Cai/KVCache-Factory pyramidkv/pyramidkv_utils.py (kv_head mode: one
set per KV head, no repeated keys). ``paper`` puts layers on the line exactly and spends floor(r N L);
``official`` truncates the step as the code does, which spends up to 23 % more at 5 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..budgets import tokens_kept, total_budget, water_fill
from ..method import Method
from ..retention import Protected
from ..scorers import WINDOW, WindowVotes
from ..statistics import PrefillStats

VOTES = WindowVotes(window=64, kernel=5, pooling="avg")
VARIANTS = ("paper", "official")


@dataclass(frozen=True)
class Pyramid:
    """Past tokens of layer l on the line from hi (l = 0) to lo (l = L - 1), the window on top in every layer.

    base = B - w, lo = floor(base / beta), hi = 2 base - lo; hi is at most N - w, and then lo = 2 base - hi.
    """

    votes: WindowVotes = VOTES
    beta: int = 20
    from_length: ClassVar[bool] = True

    def window(self, stats: PrefillStats, retention: float) -> int:
        """w, one for all layers: capped at half the mean budget B."""
        return self.votes.size(tokens_kept(retention, stats.prompt.length))

    def ends(self, base: int, room: int) -> tuple[int, int]:
        """(hi, lo) with at most ``room`` = N - w past tokens in a layer."""
        lo = base // self.beta
        return (2 * base - lo, lo) if 2 * base - lo < room else (room, 2 * base - room)

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        n, layers = stats.prompt.length, stats.n_layers
        total, window = total_budget(stats, retention), self.window(stats, retention)
        hi, lo = self.ends(tokens_kept(retention, n) - window, n - window)
        line = [hi - layer * (hi - lo) / max(1, layers - 1) for layer in range(layers)]
        past = water_fill(line, total - layers * window, n - window, floor=0)
        return [window + entries for entries in past]


@dataclass(frozen=True)
class OfficialPyramid(Pyramid):
    """The step of the line is truncated; prompts shorter than 2 base get equal budgets."""

    def past(self, cap: int, window: int, length: int, layers: int) -> list[int]:
        """Past tokens per layer for budget ``cap``."""
        base = cap - window
        if length < 2 * base:
            return [base] * layers
        hi, lo = self.ends(base, length - window)
        step = (hi - lo) // max(1, layers - 1)
        return [hi - layer * step for layer in range(layers)]

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        window, cap = self.window(stats, retention), tokens_kept(retention, stats.prompt.length)
        past = self.past(cap, window, stats.prompt.length, stats.n_layers)
        return [min(stats.prompt.length, window + entries) for entries in past]


def build(variant: str) -> Method:
    """Window 64 capped at half of B, beta 20, average pooling over 5 positions."""
    return Method(
        name="pyramid_kv",
        paper="Cai et al., COLM 2025",
        budget=Pyramid() if variant == "paper" else OfficialPyramid(),
        scorer=VOTES,
        retention=Protected(),
        variant=variant,
        needs=frozenset({WINDOW}),
        exact_budget=variant == "paper",
        source="Zefan-Cai/KVCache-Factory pyramidkv/pyramidkv_utils.py",
    )

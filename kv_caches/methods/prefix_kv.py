"""PrefixKV: every layer keeps the prefix of its sorted importance that reaches one common level of coverage.

Wang et al., "PrefixKV: Adaptive Prefix KV Cache is What Vision Instruction-Following Models Need for
Efficient Generation", NeurIPS 2025 (arXiv 2412.03409). Checked against THU-MIG/PrefixKV prefixkv.py.
Importance is the attention a key receives from all rows, head mean, one set per layer; the first 4 tokens and
the last always stay.

``online`` searches the level for each prompt; ``offline`` is the published protocol: shares measured
beforehand on other prompts (``python -m kv_caches.profile``), given as KV_PROFILE. The search's tolerance and
truncation are the code's, so the total differs from floor(r N L) by up to one entry per layer; on tiny
prompts the protected tokens alone may exceed it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..decode import FixedSlot
from ..method import Method
from ..retention import Protected
from ..scorers import HeadMean
from ..statistics import ColumnSums, PrefillStats

IMPORTANCE = HeadMean(ColumnSums())
PROTECTED = 5  # 4 first tokens and the last
VARIANTS = ("online", "offline")


@dataclass(frozen=True)
class CommonCoverage:
    """Bisect the coverage m until the layers together forget F = (1 - r) N L entries, give or take ``tolerance``."""

    protected: int = PROTECTED
    tolerance: int = 5

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        n, layers = stats.prompt.length, stats.n_layers
        importance = torch.cat([IMPORTANCE.score(stats, layer, 0) for layer in range(layers)])
        most = max(0, n - self.protected)
        return [n - min(f, most) for f in self.forget(importance, (1 - retention) * n * layers)]

    def forget(self, importance: Tensor, target: float) -> list[int]:
        """Entries each layer forgets: the search's numbers scaled to ``target`` and truncated. importance: (L, N)."""
        raw = self.search(importance, target)[1]
        return [int(f * target / sum(raw) + 1e-9) if f else 0 for f in raw]

    def search(self, importance: Tensor, target: float) -> tuple[float, list[int]]:
        """(m, forgotten per layer): i is the first index whose normalised sorted cumulative importance reaches m, and
        N - (i + 1) - protected entries are forgotten, at least 0."""
        ordered = importance.double().sort(dim=-1, descending=True).values
        covered = (ordered / ordered.sum(-1, keepdim=True)).cumsum(-1)
        low, high, level = 0.0, 1.0, 0.5
        forgotten = torch.zeros(0)
        for _ in range(60):  # the code bisects without end where no level is within tolerance
            level = (low + high) / 2
            first = (covered < level).sum(-1)
            forgotten = (importance.shape[1] - (first + 1) - self.protected).clamp(min=0)
            if abs(int(forgotten.sum()) - target) < self.tolerance:
                break
            low, high = (low, level) if int(forgotten.sum()) < target else (level, high)
        return level, forgotten.tolist()


@dataclass(frozen=True)
class SlotOfLayer(FixedSlot):
    """Each layer may hold the share of all tokens that it kept of the prompt."""

    def share(self, stats: PrefillStats, layer: int, kept: list[Tensor], retention: float) -> float:
        return kept[0].numel() / stats.prompt.length


def build(variant: str) -> Method:
    """``online`` or ``offline``, see above."""
    online = Method(
        name="prefix_kv",
        paper="Wang et al., NeurIPS 2025",
        budget=CommonCoverage(),
        scorer=IMPORTANCE,
        retention=Protected(sinks=4, last=1),
        variant="online",
        needs=frozenset({IMPORTANCE.statistic}),
        decode_rule=SlotOfLayer(),
        exact_budget=False,
        source="THU-MIG/PrefixKV prefixkv.py",
    )
    if variant == "offline":
        from .prefix_kv_offline import offline

        return offline(online)
    return online

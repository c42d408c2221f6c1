"""ElasticCache as released, defects included, so that its difference from the paper can be measured.

liuzuyan/ElasticCache kv_cache.py, rewritten from its behaviour. It reads the permutation returned by argsort
as if it held ranks, so what stays has nothing to do with importance; it keeps one entry fewer than asked; the
positions it merges lack the offset of the first tokens, so the first tokens (which stay) are merged and the
last ones that leave are not. While decoding the slot to drop is not checked: it may be negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..decode import FixedSlot, SlotState
from ..errors import ReleasedCodeError
from ..merging import Merging, leaving
from ..method import Method, Selection
from ..prompt import Prompt
from ..scorers import HeadMean
from ..statistics import ColumnSums, PrefillStats
from .elastic_cache import nearest_kept

COLUMNS = ColumnSums()


def forget(length: int, retention: float) -> int:
    """F = trunc(N - N (1 - e)) with e = 1 - r, in floating point as the code does."""
    return int(length - length * (1 - (1 - retention)))


class OfficialBudget:
    """N - F in every layer, one more than really stays."""

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        length = stats.prompt.length
        return [length - forget(length, retention)] * stats.n_layers


@dataclass(frozen=True)
class ArgsortAsRank:
    """Between the first tokens and the last one, keep slot p where argsort(scores)[p] > F."""

    sinks: int = 4

    def keep(self, scores: Tensor, budget: int, prompt: Prompt) -> list[Tensor]:
        n = prompt.length
        order = torch.sort(scores[0, self.sinks : n - 1].float(), stable=True).indices.cpu()
        middle = (order > n - budget).nonzero().flatten() + self.sinks
        return [torch.cat([torch.arange(self.sinks), middle, torch.tensor([n - 1])])]


@dataclass(frozen=True)
class MergeWithoutOffset:
    """Positions that leave, each too low by the number of first tokens, go into the nearest kept one."""

    sinks: int = 4

    def merge(self, kept: Tensor, keys: Tensor, prompt: Prompt) -> Merging:
        gone = leaving(kept, prompt.length) - self.sinks
        return Merging(gone, nearest_kept(gone, kept[self.sinks : -1]) if gone.numel() else gone)


@dataclass(frozen=True)
class UncheckedSlot(FixedSlot):
    """Slot N - F - 25, whatever its sign: -1 almost doubles the cache, other negative slots count from the end."""

    name: ClassVar[str] = "fixed slot"

    def begin(self, stats: PrefillStats, layer: int, kept: list[Tensor], retention: float) -> SlotState:
        n = stats.prompt.length
        return SlotState(n - forget(n, retention) - self.distance, 1 - (1 - retention), n)

    def evict(self, state: SlotState, attention: list[Tensor]) -> list[Tensor] | None:
        state.seen += 1
        slots = list(range(attention[0].shape[-1]))
        excess = int(len(slots) - state.seen * state.share)
        if excess < 1:
            return None
        if excess > 1:
            raise ReleasedCodeError("the released ElasticCache asserts that one entry leaves at a time")
        return [torch.tensor(slots[: state.slot] + slots[state.slot + 1 :])]


@dataclass(frozen=True)
class OfficialMethod(Method):
    """Where no entry between the protected ones stays the released code raises; here the cache then stays full."""

    def select(self, stats: PrefillStats, retention: float) -> Selection:
        n, gone = stats.prompt.length, forget(stats.prompt.length, retention)
        middle = n - self.retention.sinks - 1  # type: ignore[attr-defined]
        if gone > 0 and middle <= gone + 1:
            return Selection([[torch.arange(n)] for _ in range(stats.n_layers)], official_broke=True)
        return super().select(stats, retention)


def build_official(sinks: int = 4) -> Method:
    """The released code with ``sinks`` first tokens kept."""
    return OfficialMethod(
        name="elastic_cache",
        paper="Liu et al., ECCV 2024",
        budget=OfficialBudget(),
        scorer=HeadMean(COLUMNS),
        retention=ArgsortAsRank(sinks),
        variant="official",
        needs=frozenset({COLUMNS}),
        decode_rule=UncheckedSlot(),
        exact_budget=False,
        merge=MergeWithoutOffset(sinks),
        source="liuzuyan/ElasticCache kv_cache.py",
    )

"""TGV-KV as released, defects included, so that its difference from the paper can be measured.

Danielement321/TGV-KV kv_caches/tgv_kv.py, rewritten from its behaviour. It differs from the paper in that the first 4
and the last token always stay, "vision" is one block [first, first + count) of one id, surplus over N is lost, text
before the block is ranked by all rows, text is protected by adding 100 to scores, and decoding evicts by the current
query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..method import Method, Selection
from ..retention import Protected
from ..statistics import ColumnSums, PrefillStats, TextGrounding

BLOCK_ROWS = TextGrounding(after_block=True)
COLUMNS = ColumnSums()


@dataclass(frozen=True)
class OfficialBudget:
    """f_l = max(0, round(rho_l N)) forgotten, rho_l = 1 - L r share_l; layers above N keep N and lose the surplus."""

    protected: int = 5

    def shares(self, stats: PrefillStats) -> list[float]:
        """Text-to-block mass of each layer, as a share of all layers."""
        start, stop = stats.prompt.official_block
        mass = [float(stats.get(BLOCK_ROWS, i).received[start:stop].double().sum()) for i in range(stats.n_layers)]
        return [m / sum(mass) for m in mass]

    def rho(self, stats: PrefillStats, retention: float) -> list[float]:
        """Share of the prompt each layer forgets; negative where the budget exceeds N."""
        return [1 - stats.n_layers * retention * share for share in self.shares(stats)]

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        n = stats.prompt.length
        forget = [max(0, round(rho * n)) for rho in self.rho(stats, retention)]
        return [max(min(self.protected, n), n - f) for f in forget]


@dataclass(frozen=True)
class OfficialScores:
    """Block by weighted text rows; text before it by all rows + 100; text behind it by text rows + 100."""

    dtype: torch.dtype = torch.float32

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        start, stop = stats.prompt.official_block
        text = stats.get(BLOCK_ROWS, layer)
        scores = text.weighted.to(self.dtype)
        scores[:start] = stats.get(COLUMNS, layer).mean(0)[:start].to(self.dtype) + 100
        scores[stop:] = text.received[stop:].to(self.dtype) + 100
        return scores[None]


@dataclass
class _Slots:
    rho: float
    suffix: int  # protected slots at the end of the cache
    prompt_length: int
    steps: int = 0


@dataclass(frozen=True)
class EvictLeastAttended:
    """Per step, once a layer holds more than its growing allowance M (1 - rho): drop the slot in
    [sinks, S - suffix) that the current query attends to least. ``suffix`` is the number of prompt tokens kept behind
    the block, fixed at prefill, so it slides off the prompt's text as answers grow."""

    budget: OfficialBudget
    sinks: int = 4
    name: ClassVar[str] = "least attended"

    def begin(self, stats: PrefillStats, layer: int, kept: list[Tensor], retention: float) -> _Slots:
        suffix = int((kept[0] >= stats.prompt.official_block[1]).sum())
        return _Slots(self.budget.rho(stats, retention)[layer], max(1, suffix), stats.prompt.length)

    def evict(self, state: _Slots, attention: list[Tensor]) -> list[Tensor] | None:
        state.steps += 1
        row = attention[0].mean(0)
        slots = row.numel()
        excess = slots - (state.prompt_length + state.steps) * (1 - state.rho)
        stop = slots - state.suffix
        if excess < 1 or stop <= self.sinks:
            return None
        victim = self.sinks + int(row[self.sinks : stop].argmin())
        return [torch.tensor([i for i in range(slots) if i != victim])]


@dataclass(frozen=True)
class OfficialMethod(Method):
    """The released code swallows its own errors and goes on with the full cache: no image, or no text behind it."""

    def select(self, stats: PrefillStats, retention: float) -> Selection:
        prompt = stats.prompt
        if not prompt.vision.numel() or prompt.official_block[1] >= prompt.length:
            return Selection([[torch.arange(prompt.length)] for _ in range(stats.n_layers)], official_broke=True)
        return super().select(stats, retention)


def build_official(variant: str, sinks: int = 4) -> Method:
    """``official`` scores in float32; ``official_bf16`` rounds scores as a half-precision run does."""
    dtype = torch.bfloat16 if variant == "official_bf16" else torch.float32
    budget = OfficialBudget(protected=sinks + 1)
    return OfficialMethod(
        name="tgv_kv",
        paper="Liu et al., ICML 2026",
        budget=budget,
        scorer=OfficialScores(dtype),
        retention=Protected(sinks=sinks, last=1),
        variant=variant,
        needs=frozenset({BLOCK_ROWS, COLUMNS}),
        decode_rule=EvictLeastAttended(budget, sinks),
        exact_budget=False,
        source="Danielement321/TGV-KV kv_caches/tgv_kv.py",
    )

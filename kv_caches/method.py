"""A method is data plus up to four small parts: needs, budget, scorer, retention (and a decode rule)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from .budgets import Budget, tokens_kept
from .errors import ConfigError, UnsupportedError
from .merging import Merge
from .retention import Retention
from .statistics import PrefillStats, Statistic, not_finite


class Scorer(Protocol):
    """How important every prompt position is."""

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        """(S, N) float32, higher stays; S = 1 when all KV heads share one set, else the number of KV heads.

        Args:
            budget: B = floor(r N), what a layer keeps when all are equal, for scores that depend on it (the size of
                an observation window, the same in every layer).
        """
        ...


class DecodeRule(Protocol):
    """What leaves the cache while decoding. Called once per layer, sample and step."""

    def begin(self, stats: PrefillStats, layer: int, kept: list[Tensor], retention: float) -> Any:
        """State of one layer right after the prompt's eviction."""
        ...

    def evict(self, state: Any, attention: list[Tensor]) -> list[Tensor] | None:
        """Slots that stay after this step, one ascending tensor per set, or None when nothing leaves.

        Args:
            attention: the newest query's float32 attention over the slots, the new token last: one (H, S) tensor when
                all heads share a set, else one (H / G, S) tensor per KV head.
        """
        ...


@dataclass
class Selection:
    """What one prompt keeps: ``kept[layer][set]`` ascending positions.

    ``official_broke`` marks a prompt on which the released code fails and falls back to the full cache. ``window`` is
    the size of the observation window, where the scores come from one; ``budgets`` are those of the layers.
    """

    kept: list[list[Tensor]]
    official_broke: bool = False
    window: int | None = None
    budgets: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Method:
    """One eviction method in one variant.

    Attributes:
        name: registry name. paper: short citation. variant: 'paper', 'official', ...
        needs: prefill statistics. budget, scorer, retention: see the protocols.
        decode_rule: the method's own decode-time eviction, used with KV_DECODE=evict only.
        exact_budget: False for variants whose own rule misses floor(r N L).
        merge: how leaving entries live on in the kept ones; None drops them.
        source: the public code the method was checked against, ``owner/name path``.
        shares_prefill: False when the method changes the prefill itself.
        prunes_prefill: True when the prompt's own tokens see in a layer only what the layer keeps: one set for all
            heads, chosen before the layer runs from what earlier layers measured.
    """

    name: str
    paper: str
    budget: Budget
    scorer: Scorer
    retention: Retention
    variant: str = "paper"
    needs: frozenset[Statistic] = field(default_factory=frozenset)
    decode_rule: DecodeRule | None = None
    exact_budget: bool = True
    merge: Merge | None = None
    source: str = ""
    shares_prefill: bool = True
    prunes_prefill: bool = False

    def configured(self, config: Any) -> Method:
        """This method with what else a KVConfig says, called once when the configuration is made.

        Raises:
            ConfigError: a setting the method has no use for, or one it lacks.
        """
        if config.profile:
            raise ConfigError(f"KV_PROFILE={config.profile!r}: {self.name} (variant {self.variant}) reads no profile")
        return self

    @property
    def evicts_in_layer(self) -> bool:
        """Whether a layer can evict before the next one runs, so that the whole prompt is never cached."""
        early = self.prunes_prefill or getattr(self.budget, "from_length", False)
        return early and type(self).select is Method.select

    def select(self, stats: PrefillStats, retention: float) -> Selection:
        """Kept positions of every layer for one prompt at retention ``retention`` (share kept)."""
        selection = self.begin(stats, retention)
        for layer in range(stats.n_layers):
            self.choose(selection, stats, retention, layer)
        return selection

    def begin(self, stats: PrefillStats, retention: float) -> Selection:
        """A selection without a layer."""
        window = getattr(self.scorer, "size", None)
        return Selection([], window=window and window(tokens_kept(retention, stats.prompt.length)))

    def choose(self, selection: Selection, stats: PrefillStats, retention: float, layer: int) -> None:
        """Add the next layer's kept positions to a selection."""
        if not layer:
            selection.budgets = self.budget.allocate(stats, retention)
        equal = tokens_kept(retention, stats.prompt.length)
        selection.kept.append(self._keep(stats, layer, selection.budgets[layer], equal))

    def _keep(self, stats: PrefillStats, layer: int, budget: int, equal: int) -> list[Tensor]:
        if budget >= stats.prompt.length:
            return [torch.arange(stats.prompt.length)]
        scores = self.scorer.score(stats, layer, equal)
        if bool(scores.isnan().any()):
            raise UnsupportedError(not_finite(layer, f"scores of {self.name}"))
        return self.retention.keep(scores, budget, stats.prompt)

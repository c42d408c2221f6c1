"""PrefixKV with layer shares measured beforehand, as published: THU-MIG/PrefixKV confs/*.json.

The published vectors exist for LLaVA-1.5 and shares evicted in steps of 0.1 only; ``python -m
kv_caches.profile`` measures them for any model and ratio.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from ..errors import ConfigError
from ..method import Method
from ..profiles import read_profile
from ..statistics import PrefillStats
from .prefix_kv import PROTECTED


@dataclass(frozen=True)
class Profiled:
    """A fixed share per layer: round_half_even(share N) entries are forgotten."""

    evicted: tuple[float, ...] = ()
    protected: int = PROTECTED

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        if len(self.evicted) != stats.n_layers:
            raise ConfigError(f"KV_PROFILE has {len(self.evicted)} layers, the model {stats.n_layers}")
        n = stats.prompt.length
        most = max(0, n - self.protected)
        return [n - min(round(share * n), most) for share in self.evicted]


@dataclass(frozen=True)
class OfflinePrefixKV(Method):
    """Reads its profile from the configuration."""

    def configured(self, config: Any) -> Method:
        if not config.profile:
            raise ConfigError(
                "KV_VARIANT=offline of prefix_kv needs KV_PROFILE: a profile for this model and ratio, "
                "made by `python -m kv_caches.profile`"
            )
        return replace(self, budget=Profiled(read_profile(config.profile, config.retention)))


def offline(online: Method) -> Method:
    """The online method with its search replaced by a profile."""
    parts = {field.name: getattr(online, field.name) for field in fields(online)}
    return OfflinePrefixKV(**parts | {"variant": "offline", "budget": Profiled()})

"""Which method runs at which budget, read once from the environment or given in code, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from . import registry
from .errors import ConfigError, nearest
from .method import Method
from .models import model_row
from .profiles import profile_digest
from .prompt import counts_video
from .values import NUMBER, text, whole

FINGERPRINT_VERSION = "v1"
DECODE_MODES = ("append", "evict")
KNOWN_VARIABLES = {
    "KV_CACHE_TYPE": "the method; 'none' is the full cache, unset leaves the model alone",
    "PRUNE_RATIO": "share of the prompt's KV entries evicted, in [0, 1): 0.95 keeps 5 %",
    "KV_RETENTION": "the same stated as the share kept, in (0, 1]",
    "MODEL_TYPE": "a row of configs/models/*.yaml; checked against the loaded model",
    "MAX_GENERATED_TOKENS": "cap on new tokens; the task's own limit still holds",
    "KV_VARIANT": "variant of the method (paper, official, ...)",
    "KV_DECODE": "append (default): generated tokens stay; evict: the method's own decode rule",
    "KV_PROFILE": "profile of a variant that needs one (prefix_kv offline): a file, or a folder with one per ratio",
    "KV_RECORDS_DIR": "folder of the per-sample records",
    "KV_SWEEP": "a sweep of configs/sweeps, or a YAML file: one prefill answers all its configurations",
    "KV_DECODE_BATCH": "most rows that a sweep decodes together; default: what fits into free memory",
    "KV_RECORD_KEPT": "1 writes into the records which entries stayed, and beside them what they were, to draw them",
    "KV_ALLOW_FAILURES": "1 lets a run with failed samples exit with status 0",
    "KV_JUDGE": "who judges open answers: api (a judge model, the default), exact (offline rule), none (not now)",
    "KV_JUDGE_CONCURRENCY": "most requests to the judge model at once; default 8",
    "KV_JUDGE_TIMEOUT": "seconds that one request to the judge model may take; default 60",
    "KV_JUDGE_BACKOFF": "seconds before a failed request is tried again, doubled each time; default 1",
}
_TEXTS = ("method", "variant", "decode", "model_type", "profile")
_CHECKED_PREFIXES = ("KV_", "PRUNE_")


@dataclass(frozen=True)
class KVConfig:
    """One method at one budget.

    Attributes:
        method: registry name, any spelling. retention: share of prompt entries kept, in (0, 1]; only 'full' needs none.
        variant: '' takes the method's default. decode: 'append' or 'evict'.
        model_type: a row of configs/models, or None to infer.
        max_new_tokens: cap on new tokens, or None; for wrappers, ``attach`` leaves ``generate`` its own limit.
        profile: file or folder made by ``python -m kv_caches.profile``, for variants that need one.

    Raises:
        ConfigError: any value that is not allowed.
    """

    method: str = "full"
    retention: float = None  # type: ignore[assignment] # a number once made
    variant: str = ""
    decode: str = "append"
    model_type: str | None = None
    max_new_tokens: int | None = None
    profile: str | None = None

    def __post_init__(self) -> None:
        for name in _TEXTS:
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or name in ("method", "variant", "decode")):
                raise ConfigError(f"{name}={text(value)} must be text, not {type(value).__name__}")
        object.__setattr__(self, "method", registry.canonical(self.method))
        object.__setattr__(self, "variant", self.variant or registry.variants(self.method)[0])
        if self.model_type is not None:
            model_row(self.model_type)
        if self.max_new_tokens is not None:
            object.__setattr__(self, "max_new_tokens", whole("max_new_tokens", self.max_new_tokens, least=1))
        if self.retention is None:
            if self.method != "full":
                raise ConfigError(f"method={self.method!r} needs retention, the share kept: 0.05 keeps 5 %")
            object.__setattr__(self, "retention", 1.0)
        if not isinstance(self.retention, int | float) or isinstance(self.retention, bool):
            raise ConfigError(f"retention={text(self.retention)} must be a number in (0, 1]")
        if not 0 < self.retention <= 1:
            raise ConfigError(f"KV_RETENTION={text(self.retention)} must be in (0, 1]: it is the share of entries kept")
        if self.method == "full" and self.retention != 1:
            raise ConfigError(
                f"KV_CACHE_TYPE=none keeps every entry, but the ratio given keeps {_percent(self.retention)}: "
                "unset PRUNE_RATIO and KV_RETENTION, or choose a method"
            )
        if self.decode not in DECODE_MODES:
            raise ConfigError(
                f"KV_DECODE={self.decode!r} is not allowed; allowed: {', '.join(DECODE_MODES)}."
                f"{nearest(self.decode, DECODE_MODES)}"
            )
        method = self.build()
        if self.decode == "evict" and method.decode_rule is None:
            raise ConfigError(
                f"KV_DECODE=evict: {self.method} (variant {self.variant}) has no decode rule; use KV_DECODE=append"
            )

    def build(self) -> Method:
        """The method, with everything this configuration says about it."""
        return registry.build(self.method, self.variant).configured(self)

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> KVConfig | None:
        """Read the configuration; None when KV_CACHE_TYPE is unset, which leaves the model as it is.

        Raises:
            ConfigError: an unknown variable, a value that is not allowed, or settings that contradict each other.
        """
        _check_names(env)
        retention = _retention(env)
        if "KV_CACHE_TYPE" not in env:
            for name in ("PRUNE_RATIO", "KV_RETENTION", "KV_VARIANT", "KV_DECODE", "KV_PROFILE"):
                if name in env:
                    raise ConfigError(
                        f"{name}={env[name]!r} is set but KV_CACHE_TYPE is not: name the method or unset it"
                    )
            return None
        method = registry.canonical(env["KV_CACHE_TYPE"])
        if retention is None and method != "full":
            raise ConfigError(
                f"KV_CACHE_TYPE={env['KV_CACHE_TYPE']!r} needs a ratio: set PRUNE_RATIO "
                "(share evicted, 0.95 keeps 5 %) or KV_RETENTION (share kept)"
            )
        return cls(
            method=method,
            retention=1.0 if retention is None else retention,
            variant=env.get("KV_VARIANT", ""),
            decode=env.get("KV_DECODE", "append"),
            model_type=env.get("MODEL_TYPE"),
            max_new_tokens=max_generated_tokens(env),
            profile=env.get("KV_PROFILE") or None,
        )

    def fingerprint(self, **extra: Any) -> str:
        """Versioned hash of everything that can change an answer, the method's own file included.

        Args:
            extra: what the caller knows besides: checkpoint, revision, wrapper kind, precision, image limits, ...
        """
        own = {k: v for k, v in asdict(self).items() if k not in ("model_type", "profile")}
        own["source"] = registry.source_digest(self.method)
        if counts_video(self.model_type) and any(getattr(need, "after_block", False) for need in self.build().needs):
            own["counted"] = "video"
        if self.profile is not None:
            own["profile"] = profile_digest(self.profile, self.retention)
        text = json.dumps({"config": own, "extra": extra}, sort_keys=True, default=str)
        return f"{FINGERPRINT_VERSION}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def describe(self) -> str:
        """One line in words: what is kept."""
        if self.method == "full":
            return "KV cache: full, every entry of the prompt is kept"
        return (
            f"KV cache: {self.method} ({self.variant}) keeps {_percent(self.retention)} of the prompt's entries "
            f"and evicts {_percent(1 - self.retention)} (PRUNE_RATIO={1 - self.retention:.6g}); "
            f"generated tokens: {self.decode}"
        )


def max_generated_tokens(env: Mapping[str, str] = os.environ) -> int | None:
    """MAX_GENERATED_TOKENS as a positive integer, or None when unset."""
    value = env.get("MAX_GENERATED_TOKENS")
    return None if value is None else whole("MAX_GENERATED_TOKENS", value, least=1)


def _percent(share: float) -> str:
    return f"{100 * share:.6g} %"


def _check_names(env: Mapping[str, str]) -> None:
    for name in env:
        if name.startswith(_CHECKED_PREFIXES) and name not in KNOWN_VARIABLES:
            raise ConfigError(
                f"{name} is not a variable of this project; known: {', '.join(KNOWN_VARIABLES)}."
                f"{nearest(name, KNOWN_VARIABLES)}"
            )


def _share(name: str, given: str) -> Decimal:
    value = Decimal(given.strip() if NUMBER.fullmatch(given) else "nan")
    evicted = name == "PRUNE_RATIO"
    meaning = "the share evicted, in [0, 1)" if evicted else "the share kept, in (0, 1]"
    if not value.is_finite():
        raise ConfigError(
            f"{name}={given!r} is not a number; it is {meaning}, e.g. {name}={'0.95' if evicted else '0.05'}"
        )
    if not (0 <= value < 1 if evicted else 0 < value <= 1):
        hint = f" For {value.normalize():f} % write {name}={(value / 100).normalize():f}." if 1 < value < 100 else ""
        hint = " Evicting everything leaves nothing to attend to." if evicted and value == 1 else hint
        raise ConfigError(f"{name}={given} is out of range: it is {meaning}.{hint}")
    return value


def _retention(env: Mapping[str, str]) -> float | None:
    """Share kept from PRUNE_RATIO and KV_RETENTION, exact in decimal; None when neither is set."""
    kept = {n: _share(n, env[n]) for n in ("PRUNE_RATIO", "KV_RETENTION") if n in env}
    if "PRUNE_RATIO" in kept:
        kept["PRUNE_RATIO"] = 1 - kept["PRUNE_RATIO"]
    if len(set(kept.values())) > 1:
        raise ConfigError(
            f"PRUNE_RATIO={env['PRUNE_RATIO']} keeps {_percent(float(kept['PRUNE_RATIO']))} but "
            f"KV_RETENTION={env['KV_RETENTION']} keeps {_percent(float(kept['KV_RETENTION']))}: set only one of them"
        )
    return float(next(iter(kept.values()))) if kept else None

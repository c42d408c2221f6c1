"""Sweeps: named lists of configurations, from configs/sweeps/*.yaml and the command line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kv_caches import ConfigError, KVConfig
from kv_caches.errors import nearest
from kv_caches.registry import canonical, variants
from kv_caches.values import number, read_yaml, text
from tgv_kv_harness import beside_code

FOLDER = beside_code("configs/sweeps")
_KEYS = {"retention", "methods"}
_TEXTS = ("method", "variant", "decode", "profile")
_ENTRY_KEYS = {*_TEXTS, "retention"}


def sweep_names() -> list[str]:
    """Names of the sweeps in configs/sweeps."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_sweep(
    name: str, methods: Sequence[str] = (), retention: Sequence[float] = (), base: KVConfig | None = None
) -> list[KVConfig]:
    """The configurations of a sweep, the full cache first, no configuration twice.

    Args:
        name: a file of configs/sweeps without its ending, or a path to a YAML file.
        methods: keep only these methods (and the full cache, which the others are compared with).
        retention: budgets that replace the sweep's own.
        base: where limits that are not part of a sweep come from (model type, new tokens).

    Raises:
        ConfigError: no such sweep, or something in it that is not allowed.
    """
    path = _find(name)
    content = _read(path)
    wanted = {canonical(method, "METHODS") for method in methods} | {"full"}
    budgets = list(retention) or content["retention"]
    configs: dict[KVConfig, None] = {}
    for entry in content["methods"]:
        for config in _entry(path, entry, budgets, base or KVConfig()):
            if not methods or config.method in wanted:
                configs[config] = None
    listed = {config.method for config in configs}
    for method in sorted(wanted - listed):
        configs |= dict.fromkeys(_entry(path, method, budgets, base or KVConfig()))
    _check_labels(path, configs)
    return sorted(configs, key=lambda config: config.method != "full")


def _check_labels(path: Path, configs: Iterable[KVConfig]) -> None:
    seen: dict[str, KVConfig] = {}
    for config in configs:
        name = label(config)
        if name in seen:
            raise ConfigError(f"{path}: {seen[name]} and {config} would both be written to a folder {name}; keep one")
        seen[name] = config


def _read(path: Path) -> dict[str, list[Any]]:
    """A sweep's content, its form checked."""
    content = read_yaml(path)
    if not isinstance(content, dict) or set(content) != _KEYS:
        raise ConfigError(f"{path}: a sweep has exactly the keys {', '.join(sorted(_KEYS))}")
    for key in sorted(_KEYS):
        if not isinstance(content[key], list) or not content[key]:
            raise ConfigError(f"{path}: {key} must be a list with something in it, not {content[key]!r}")
    for entry in content["methods"]:
        if not isinstance(entry, str) and not (isinstance(entry, dict) and isinstance(entry.get("method"), str)):
            raise ConfigError(f"{path}: {entry!r} in methods must be a name or a mapping with the key method")
    _check_shares(path, content["retention"])
    return content


def _check_shares(path: Path, shares: Sequence[Any]) -> None:
    for share in shares:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise ConfigError(f"{path}: retention {text(share)} must be a number in (0, 1], the share kept, e.g. 0.05")


def chosen(name: str, methods: str = "", retention: str = "", base: KVConfig | None = None) -> list[KVConfig]:
    """`load_sweep` with methods and budgets as they are typed: separated by commas or spaces.

    Raises:
        ConfigError: as `load_sweep`, or a budget that is no number.
    """
    try:
        shares = [number("--retention", part, most=1) for part in retention.replace(",", " ").split()]
    except ConfigError as error:
        raise ConfigError(f"{error}: shares kept, such as 0.5,0.1") from error
    return load_sweep(name, methods.replace(",", " ").split(), shares, base)


def _find(name: str) -> Path:
    path = Path(name)
    if path.suffix in (".yaml", ".yml") and os.path.isfile(path):
        return path
    if name not in sweep_names():
        allowed = ", ".join(sweep_names())
        raise ConfigError(
            f"KV_SWEEP={name!r} is neither a YAML file nor a sweep of configs/sweeps; allowed: {allowed}."
            f"{nearest(name, sweep_names())}"
        )
    return FOLDER / f"{name}.yaml"


def _entry(path: Path, entry: Any, budgets: Sequence[float], base: KVConfig) -> list[KVConfig]:
    fields = {"method": entry} if isinstance(entry, str) else dict(entry)
    for key in fields:
        if key not in _ENTRY_KEYS:
            allowed = ", ".join(sorted(_ENTRY_KEYS))
            raise ConfigError(
                f"{path}: {key!r} in {entry!r} is not allowed; allowed: {allowed}.{nearest(str(key), _ENTRY_KEYS)}"
            )
    for key in _TEXTS:
        if not isinstance(fields.get(key, ""), str):
            raise ConfigError(
                f"{path}: {key} of {entry['method']} must be text, and YAML reads it as {text(fields[key])}: put it in "
                "quotes"
            )
    own = fields.pop("retention", None)
    if canonical(fields["method"], f"{path}: method") == "full":
        if len(fields) > 1:
            raise ConfigError(f"{path}: {entry!r}: the full cache has no {', '.join(set(fields) - {'method'})}")
        return [replace(base, method="full", retention=1.0, variant="", decode="append", profile=None)]
    shares = budgets if own is None else own if isinstance(own, list) else [own]
    if not shares:
        raise ConfigError(f"{path}: retention of {fields['method']} is empty: leave it out for that of the sweep")
    _check_shares(path, shares)
    settings = {"variant": "", "decode": "append", "profile": None} | fields
    return [replace(base, retention=float(share), **settings) for share in shares]


def label(config: KVConfig) -> str:
    """Name of a configuration's folder: method, what differs from its default, share evicted; `tgv_kv-0.95`."""
    if config.method == "full":
        return "full"
    parts = [config.method]
    if config.variant != variants(config.method)[0]:
        parts.append(config.variant)
    if config.decode != "append":
        parts.append(config.decode)
    if config.profile is not None:
        parts.append(Path(config.profile).stem)
    evicted = f"{1 - config.retention:.6f}".rstrip("0")
    return "-".join([*parts, evicted if len(evicted) > 4 else f"{1 - config.retention:.2f}"])


def environment(config: KVConfig) -> dict[str, str]:
    """The variables that stand for a configuration, without its limits."""
    known = {"KV_CACHE_TYPE": config.method, "KV_RETENTION": repr(config.retention), "KV_VARIANT": config.variant}
    profile = {} if config.profile is None else {"KV_PROFILE": config.profile}
    return {**known, "KV_DECODE": config.decode, **profile}

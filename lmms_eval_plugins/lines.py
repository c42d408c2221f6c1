"""Print a sweep for a shell loop: per configuration its folder and the variables that stand for it.

`--write FILE` puts the printed configurations into a sweep of their own, for KV_SWEEP.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from kv_caches import KVConfig
from kv_caches.registry import variants
from lmms_eval_plugins.errors import stop_on_config_error
from lmms_eval_plugins.sweeps import chosen, label


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m lmms_eval_plugins.lines", description=__doc__)
    parser.add_argument("--sweep", default="paper", help="name in configs/sweeps, or a YAML file")
    parser.add_argument("--methods", default="", help="only these methods, separated by commas; full is always there")
    parser.add_argument("--retention", default="", help="budgets instead of the sweep's: shares kept, by commas")
    parser.add_argument("--write", type=Path, help="file for the sweep")
    options = parser.parse_args(argv)
    with stop_on_config_error():
        configs = chosen(options.sweep, options.methods, options.retention)
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        content = {"retention": [1.0], "methods": [_entry(config) for config in configs]}
        options.write.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    for config in configs:
        print(label(config), *(f"{name}={value}" for name, value in variables(config).items()))
    return 0


def variables(config: KVConfig) -> dict[str, str]:
    """The official variables, and of the others those that are not at their defaults."""
    found = {"KV_CACHE_TYPE": config.method}
    if config.method == "full":
        return found
    evicted = f"{1 - config.retention:.9f}".rstrip("0").rstrip(".")
    found |= {"PRUNE_RATIO": evicted}
    if KVConfig.from_env(found).retention != config.retention:  # type: ignore[union-attr]
        found = {"KV_CACHE_TYPE": config.method, "KV_RETENTION": repr(config.retention)}
    if config.variant != variants(config.method)[0]:
        found["KV_VARIANT"] = config.variant
    if config.decode != "append":
        found["KV_DECODE"] = config.decode
    if config.profile is not None:
        found["KV_PROFILE"] = config.profile
    return found


def _entry(config: KVConfig) -> Any:
    if config.method == "full":
        return "full"
    fields = {"method": config.method, "variant": config.variant, "decode": config.decode}
    profile = {} if config.profile is None else {"profile": config.profile}
    return fields | profile | {"retention": config.retention}


if __name__ == "__main__":
    sys.exit(main())

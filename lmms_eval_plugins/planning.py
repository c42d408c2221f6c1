"""What a sweep is going to run: its configurations with their settings and fingerprints, and what is there of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace

from kv_caches import ConfigError, KVConfig
from kv_caches.config import max_generated_tokens
from lmms_eval_plugins import preflight, settings
from lmms_eval_plugins.checkpoint import CheckpointNotThere
from lmms_eval_plugins.families import FAMILIES
from lmms_eval_plugins.records import base_dir
from lmms_eval_plugins.settings import RunSettings
from lmms_eval_plugins.store import newest_records
from lmms_eval_plugins.sweeps import chosen, environment, label

__all__ = ["CheckpointNotThere", "configurations", "resolved", "show"]
_OF_ONE_CONFIGURATION = ("KV_CACHE_TYPE", "PRUNE_RATIO", "KV_RETENTION", "KV_VARIANT", "KV_DECODE", "KV_PROFILE")


def configurations(known: argparse.Namespace, sweep: str | None, methods: str, retention: str) -> list[KVConfig]:
    """What is to be scored, the full cache first.

    Args:
        known: lmms-eval's arguments, see `preflight.parse`. sweep, methods, retention: as typed.

    Raises:
        ConfigError: there is no such sweep, method or model, or the environment names one configuration.
    """
    for name in _OF_ONE_CONFIGURATION:
        if name in os.environ:
            raise ConfigError(f"{name}={os.environ[name]} is set, but a sweep names its configurations: unset it")
    if known.model not in FAMILIES:
        raise ConfigError(f"--model {known.model}: a sweep needs one of {', '.join(FAMILIES)}")
    base = KVConfig(model_type=os.environ.get("MODEL_TYPE"), max_new_tokens=max_generated_tokens())
    return chosen(sweep or os.environ.pop("KV_SWEEP", "paper"), methods, retention, base)


def resolved(known: argparse.Namespace, configs: Sequence[KVConfig]) -> list[RunSettings]:
    """The configurations with everything that can be known without weights.

    Raises:
        CheckpointNotThere: it cannot be read yet. ConfigError: something else is not as it can be.
    """
    env = {k: v for k, v in os.environ.items() if k != "KV_SWEEP"} | environment(configs[0])
    first = settings.resolve(FAMILIES[known.model], _kind(known), preflight.model_args(known), env)
    # With the row as resolved: what is scored must equal what the wrappers make of it.
    return [settings.for_config(first, replace(config, model_type=first.row)) for config in configs]


def show(known: argparse.Namespace, configs: Sequence[KVConfig], runs: Sequence[RunSettings]) -> None:
    """One line per configuration: label, fingerprint, answers in its store.

    Args:
        runs: of the configurations, or none while the checkpoint is not there: fingerprints follow from what is in it.
    """
    name = runs[0].pretrained if runs else preflight.model_args(known).get("pretrained")
    print(f"{len(configs)} runs of {name} ({_kind(known)} prompts) on {known.tasks}")
    for config in [] if runs else configs:
        print(f"{label(config):28} fingerprint and what is there: known when the checkpoint is")
    for run in runs:
        done: dict[str, int] = {}
        for key, record in newest_records(base_dir() / run.fingerprint).items():
            done[key.task] = done.get(key.task, 0) + (record["status"] == "ok")
        there = ", ".join(f"{count} of {task}" for task, count in sorted(done.items())) or "nothing"
        assert run.kv is not None
        print(f"{label(run.kv):28} {run.fingerprint}  there: {there}")


def _kind(known: argparse.Namespace) -> str:
    return "simple" if known.force_simple else "chat"

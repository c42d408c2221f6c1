"""Where a run keeps what it writes, and what it says about itself there.

<KV_RECORDS_DIR, default results/runs>/<fingerprint>/
    config.json            what ran: configuration, model, arguments, versions
    records.rank<r>.jsonl  one line per sample, see `store`
    summary.json           written at the end: samples, failed samples, processes
"""

import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from kv_caches import KVConfig
from lmms_eval_plugins.redaction import redacted_values
from lmms_eval_plugins.settings import RunSettings, for_config

DEFAULT_DIR = Path("results") / "runs"
_PACKAGES = ("torch", "transformers", "lmms_eval", "accelerate")


def base_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Where all runs keep their records, each in a folder named by its fingerprint."""
    return Path(env.get("KV_RECORDS_DIR") or DEFAULT_DIR)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes under a temporary name, syncs and renames: a file that exists is complete, and has no secrets."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(redacted_values(content), file, indent=2, ensure_ascii=False, default=str)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def configuration(run: RunSettings, processes: int) -> dict[str, Any]:
    """Everything a run was asked to do, for `config.json`.

    `full_fingerprint` is the full cache's with the same code, checkpoint and settings: what scores may be divided by.
    """
    return {
        "fingerprint": run.fingerprint,
        "full_fingerprint": for_config(run, KVConfig(max_new_tokens=run.max_new_tokens)).fingerprint,
        "config": asdict(run.kv) if run.kv else None,
        "model": run.pretrained,
        "revision": run.revision,
        "commit": getattr(run.hf_config, "_commit_hash", None),
        "model_type": run.hf_config.model_type,
        "lmms_eval_model": run.family.name,
        "wrapper": run.wrapper,
        "device": run.device,
        "dtype": run.dtype,
        "attn_implementation": run.attn_implementation,
        "batch_size": run.batch_size,
        "processes": processes,
        "image_max_tokens": run.vision.image_max_tokens,
        "vision_aspect_ratio": run.vision.aspect_ratio,
        "model_args": run.options,
        "versions": versions(),
    }


@cache
def versions() -> dict[str, str]:
    """Versions of what can change an answer."""
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in _PACKAGES}

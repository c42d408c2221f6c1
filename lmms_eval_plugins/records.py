"""Where a run keeps what it writes, and what it says about itself there.

<KV_RECORDS_DIR, default results/runs>/<fingerprint>/
    config.json            what ran: configuration, model, arguments, versions
    records.rank<r>.jsonl  one line per sample, see `store`
    summary.json           written at the end: samples, failed samples, processes
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kv_caches import KVConfig
from lmms_eval_plugins.files import result_file, write_json
from lmms_eval_plugins.settings import RunSettings, for_config
from lmms_eval_plugins.versions import versions

__all__ = ["base_dir", "configuration", "of_other_versions", "result_file", "versions", "write_json"]
DEFAULT_DIR = Path("results") / "runs"
_MAY_DIFFER = {"fingerprint", "full_fingerprint", "versions", "processes", "batch_size", "device"}


def base_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Where all runs keep their records, each in a folder named by its fingerprint."""
    return Path(env.get("KV_RECORDS_DIR") or DEFAULT_DIR)


def of_other_versions(content: dict[str, Any], directory: Path) -> str:
    """A line on answers of the same configuration under other versions of libraries; '' if there are none.

    Args:
        content: `configuration` of the run. directory: its own folder of records.
    """
    for path in sorted(directory.parent.glob("*/config.json")):
        found: Any = None
        with suppress(OSError, ValueError, RecursionError):
            found = json.loads(path.read_text(encoding="utf-8"))
        if path.parent == directory or not isinstance(found, dict) or not isinstance(found.get("versions"), dict):
            continue
        mine = json.loads(json.dumps(content, default=str))
        if all(found.get(name) == value for name, value in mine.items() if name not in _MAY_DIFFER):
            before = found["versions"]
            changed = ", ".join(
                f"{name} {before[name]} then, {now} now"
                for name, now in mine["versions"].items()
                if before.get(name, now) != now
            )
            if changed:
                return f"answers of other versions ({changed}) stay in {path.parent} and are not mixed with these"
    return ""


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
        "row": run.row,
        "lmms_eval_model": run.family.name,
        "wrapper": run.wrapper,
        "device": run.device,
        "dtype": run.dtype,
        "attn_implementation": run.attn_implementation,
        "batch_size": run.batch_size,
        "processes": processes,
        "image_max_tokens": run.vision.image_max_tokens,
        "vision_aspect_ratio": run.vision.aspect_ratio,
        "media_limits": dict(run.vision.library),
        "model_args": run.options,
        "versions": versions(),
    }

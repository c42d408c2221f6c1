"""What is written for every sample of a run, as soon as the sample is done.

<KV_RECORDS_DIR, default results/runs>/<fingerprint>/
    config.json            what ran: configuration, model, arguments, versions
    records.rank<r>.jsonl  one line per sample; a repeated run appends, the newest line of a sample counts
    summary.json           written at the end: samples, failed samples, processes
"""

import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DEFAULT_DIR = Path("results") / "runs"
_PACKAGES = ("torch", "transformers", "lmms_eval", "accelerate")


def run_dir(fingerprint: str, env: Mapping[str, str] = os.environ) -> Path:
    """The directory of the run with this fingerprint."""
    return Path(env.get("KV_RECORDS_DIR") or DEFAULT_DIR) / fingerprint


class RecordWriter:
    """Appends records of one process to its own file, each flushed to disk before the next sample starts."""

    def __init__(self, directory: Path, rank: int):
        self.path = directory / f"records.rank{rank}.jsonl"
        directory.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a", encoding="utf-8")

    def write(self, record: dict[str, Any]) -> None:
        """Appends one line; a crash right after keeps it."""
        line = json.dumps(record | {"time": round(time.time(), 3)}, ensure_ascii=False)
        self._file.write(line + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes under a temporary name, syncs and renames: a file that exists is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=2, ensure_ascii=False, default=str)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def versions() -> dict[str, str]:
    """Versions of what can change an answer."""
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in _PACKAGES}

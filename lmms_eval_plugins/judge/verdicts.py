"""The verdict store: <KV_RECORDS_DIR>/verdicts/verdicts.rank0.jsonl, a journal shared by all runs of the folder.

A verdict belongs to what was asked of whom: question, reference answer, answer, prompt version, judge model and server.
Equal answers of different methods or samples share one.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from threading import Lock
from typing import Any

from lmms_eval_plugins import records
from lmms_eval_plugins.journal import Journal, lines
from lmms_eval_plugins.judge import prompt
from lmms_eval_plugins.judge.settings import JudgeSettings

RIGHT_FROM = 3
"""Scores that count as right, as in the stock task."""
FOLDER = "verdicts"
_SHOWN = ("score", "pred", "model", "prompt_version")


class Verdicts(Journal):
    """Every reply that a judge gave, and those it failed to give.

    Attributes:
        failed: keys of answers that were asked for and have no verdict.
    """

    stem, schema = "verdicts", 2  # 1 did not say which server judged

    def __init__(self, directory: Path):
        super().__init__(directory)
        self._verdicts: dict[str, dict[str, Any]] = {}
        self.failed: set[str] = set()

    def load(self) -> Verdicts:
        """Reads what is there, without a lock."""
        self._verdicts, self.failed = {}, set()
        for record in lines(self.directory, self.stem):
            if record.get("schema") == self.schema and isinstance(record.get("key"), str):
                self._keep(record)
        return self

    def _keep(self, record: dict[str, Any]) -> None:
        if record.get("status") == "judged":
            self._verdicts[record["key"]] = record
            self.failed.discard(record["key"])
        elif record["key"] not in self._verdicts:
            self.failed.add(record["key"])

    def find(self, key: str) -> dict[str, Any] | None:
        """The verdict, if there is one; an answer that could not be judged has none."""
        return self._verdicts.get(key)


def key_of(entry: dict[str, Any], judge: JudgeSettings) -> str:
    """16 hex digits of what is asked, and of whom."""
    asked = [entry["question"], entry["answer"], entry["prediction"], prompt.VERSION, judge.model, judge.server]
    return hashlib.sha256(json.dumps(asked, ensure_ascii=False).encode(errors="surrogatepass")).hexdigest()[:16]


def find(entry: dict[str, Any], judge: JudgeSettings) -> dict[str, Any] | None:
    """What an entry shows of its verdict."""
    verdict = _read(records.base_dir() / FOLDER).find(key_of(entry, judge))
    return verdict and {name: verdict.get(name) for name in _SHOWN}


_cached: dict[Path, tuple[Any, Verdicts]] = {}
_cached_lock = Lock()


def _read(directory: Path) -> Verdicts:
    """Read again only when a file of the folder changed; lmms-eval scores samples in several threads."""
    with _cached_lock:
        state = [(path, os.stat(path).st_size) for path in sorted(directory.glob(f"{Verdicts.stem}.rank*.jsonl"))]
        if directory not in _cached or _cached[directory][0] != state:
            _cached[directory] = state, Verdicts(directory).load()
        return _cached[directory][1]

"""Per-sample records: the answers of a configuration and the proof of what was evicted for each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from .errors import ResultsError

SCHEMAS = (2,)
_NUMBER = (int, float, type(None))
_NOT_SAID = {
    "answer": None,
    "answer_tokens": None,
    "seconds": float("nan"),
    "timing": None,
    "eviction": None,
    "error": None,
}
_KINDS: dict[str, Any] = {
    "task": str,
    "doc_id": (int, str),
    "repeat": int,
    "status": str,
    "time": (int, float),
    "answer": (str, type(None)),
    "answer_tokens": _NUMBER,
    "seconds": (int, float),
    "timing": (str, type(None)),
    "eviction": (dict, type(None)),
}


def records_folder(run: Path, fingerprint: str, said: Path | None = None) -> Path | None:
    """Where a run's records are: where its results say, beside it, as the scripts lay them out, or in it."""
    bases = (run, run / "records", run.parent / "records", run.parent)
    places = [*([said] if said else []), *(base / fingerprint for base in bases)]
    return next((place for place in places if place.is_dir()), None)


def records_of(folder: Path) -> pd.DataFrame:
    """All records of a configuration, the newest of each answer; a line torn by a crash is dropped.

    Raises:
        ResultsError: none, or one of an unknown version or of another configuration.
    """
    records = list(_lines(folder))
    records.sort(key=lambda record: record.get("time", 0))
    if not records:
        raise ResultsError(f"{folder}: no per-sample records")
    table = pd.DataFrame(records)
    return table.drop_duplicates(["task", "doc_id", "repeat"], keep="last").reset_index(drop=True)


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("records.rank*.jsonl")):
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                record = None
                with suppress(ValueError, RecursionError):
                    record = json.loads(line)
                if isinstance(record, dict):
                    record = _NOT_SAID | record
                    _check(record, path, number, folder.name)
                    yield record


def _check(record: dict[str, Any], path: Path, number: int, fingerprint: str) -> None:
    if record.get("schema") not in SCHEMAS:
        raise ResultsError(f"{path}:{number}: record of version {record.get('schema')}, known: {SCHEMAS[-1]}")
    if record.get("fingerprint") != fingerprint:
        raise ResultsError(f"{path}:{number}: record of another configuration, {record.get('fingerprint')}")
    for name, kinds in _KINDS.items():
        if name not in record or not isinstance(record[name], kinds):
            raise ResultsError(f"{path}:{number}: {name}={record.get(name)!r:.60} in a record is not as expected")


@lru_cache(maxsize=256)
def states(folder: Path) -> dict[str, dict[str, int]]:
    """By task: how many answers are there (`ok`) and how many samples failed (`failed`)."""
    try:
        table = records_of(folder)
    except ResultsError:
        return {}
    counts = table.groupby(["task", "status"]).size()
    return {task: counts[task].to_dict() for task in counts.index.levels[0]}


def first_error(folder: Path, task: str) -> str:
    """Why the first failed sample of a task failed."""
    table = records_of(folder)
    failed = table[(table["task"] == task) & (table["status"] == "failed")]
    return str(failed["error"].iloc[0])


def configuration(folder: Path) -> dict[str, Any]:
    """What the records' `config.json` says ran; {} if there is none."""
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("config"), dict | type(None)) else {}

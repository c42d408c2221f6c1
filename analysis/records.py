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
    "prompt_hash": None,
    "attempt": 0,
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
    "prompt_hash": (str, type(None)),
    "attempt": int,
}
_PROOF = ("retention_achieved", "kv_bytes_kept", "kv_bytes_full")
_MOST = 2**63
_SAMPLE = ["task", "doc_id", "repeat", "prompt_hash"]


def records_folder(run: Path, fingerprint: str, said: Path | None = None) -> Path | None:
    """Where a run's records are: where its results say, beside it, as the scripts lay them out, or in it."""
    bases = (run, run / "records", run.parent / "records", run.parent)
    places = [*([said] if said else []), *(base / fingerprint for base in bases)]
    return next((place for place in places if place.is_dir()), None)


def records_of(folder: Path) -> pd.DataFrame:
    """The records of a configuration that count: of each sample an answer before a failure, then the last attempt.

    Lines that a crash tore or that are damaged, and those of older versions, count as absent, as they do for a run:
    it computes their answers again. `attrs` says how many there are (`damaged`).

    Raises:
        ResultsError: none, or one of another configuration.
    """
    records, damaged = [], []
    for line, record in _lines(folder):
        if record.get("schema") in SCHEMAS and record.get("fingerprint") != folder.name:
            raise ResultsError(f"{line}: record of another configuration, {record.get('fingerprint')}")
        why = _damage(record)
        (damaged if why else records).append(f"{line}: {why}" if why else record)
    if not records:
        first = f": {damaged[0]}; run again" if damaged else ""
        raise ResultsError(f"{folder}: no per-sample records{first}")
    table = pd.DataFrame(records)
    answered = (table["status"] == "ok").rename("answered")
    counts = pd.concat([answered, table["attempt"]], axis=1).sort_values(["answered", "attempt"], kind="stable").index
    table = table.loc[counts].drop_duplicates(_SAMPLE, keep="last").sort_index().reset_index(drop=True)
    table.attrs["damaged"] = len(damaged)
    return table


def _lines(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every line that is an object, and where it is."""
    for path in sorted(folder.glob("records.rank*.jsonl")):
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                record = None
                with suppress(ValueError, RecursionError):
                    record = json.loads(line)
                if isinstance(record, dict):
                    yield f"{path}:{number}", _NOT_SAID | record


def _damage(record: dict[str, Any]) -> str:
    """Why a record does not count; '' if it does."""
    if record.get("schema") not in SCHEMAS:
        return f"record of version {record.get('schema')}, known: {SCHEMAS[-1]}"
    for name, kinds in _KINDS.items():
        if name not in record or not isinstance(record[name], kinds):
            return f"{name}={record.get(name)!r:.60} in a record is not as expected"
    figures = {name: (record["eviction"] or {}).get(name) for name in _PROOF if record["eviction"] is not None}
    if record["status"] == "ok":
        figures["answer_tokens"] = record["answer_tokens"] or 0
    for name, value in figures.items():
        if not isinstance(value, int | float) or not -_MOST < value < _MOST:
            return f"{name}={value!r:.60} in a record is not as expected"
    return ""


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

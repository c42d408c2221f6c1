"""The response store: one durable line per sample and configuration, found again by whoever needs the same answer.

<KV_RECORDS_DIR, default results/runs>/<fingerprint>/records.rank<r>.jsonl, a journal: one file per process. Lines are
appended as soon as an answer exists; the newest line of a sample counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lmms_eval_plugins.journal import Journal, lines

SCHEMA = 2
"""Version of a record. Older ones lack the hash of the prompt, so nothing says what they answer."""
_STEM = "records"


class Key(NamedTuple):
    """What an answer belongs to, within one fingerprint. `repeat` counts equal requests of one run."""

    task: str
    doc_id: Any
    repeat: int
    prompt_hash: str | None


class Stored(NamedTuple):
    """What a later run needs of an answer."""

    text: str
    generated: int


class Store(Journal):
    """The answers of one configuration.

    Attributes:
        ignored: records of an older version, which count as absent.
        with_kept: an answer whose record does not say which entries stayed counts as absent too.
    """

    stem, schema = _STEM, SCHEMA

    def __init__(self, directory: Path, with_kept: bool = False):
        super().__init__(directory)
        self.with_kept = with_kept
        self.ignored = 0
        self._answers: dict[Key, Stored] = {}

    def load(self) -> Store:
        """Reads what is there, without a lock."""
        newest: dict[Key, float] = {}
        self.ignored, self._answers = 0, {}
        for record in _whole_records(self.directory):
            if record.get("schema") != SCHEMA or record["fingerprint"] != self.directory.name:
                self.ignored += 1
                continue
            key = key_of(record)
            if record["time"] >= newest.get(key, 0):
                newest[key] = record["time"]
                self._keep(record)
        return self

    def _keep(self, record: dict[str, Any]) -> None:
        lacks_kept = self.with_kept and "kept" not in (record.get("eviction") or {"kept": None})
        if record["status"] == "ok" and not lacks_kept:
            self._answers[key_of(record)] = Stored(record["answer"], record["generated_tokens"])
        else:
            self._answers.pop(key_of(record), None)

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, key: Key) -> Stored | None:
        """The answer, if there is one; failed samples have none."""
        return self._answers.get(key)

    def _own(self) -> dict[str, Any]:
        return super()._own() | {"fingerprint": self.directory.name}


def key_of(record: dict[str, Any]) -> Key:
    """The key of a record."""
    return Key(record["task"], record["doc_id"], record.get("repeat", 0), record["prompt_hash"])


def newest_records(directory: Path) -> dict[Key, dict[str, Any]]:
    """The newest whole record of each answer of a store."""
    newest: dict[Key, dict[str, Any]] = {}
    for record in _whole_records(directory):
        if record.get("schema") == SCHEMA:
            key = key_of(record)
            if key not in newest or record["time"] >= newest[key]["time"]:
                newest[key] = record
    return newest


def _whole_records(directory: Path) -> Iterator[dict[str, Any]]:
    return filter(_is_whole, lines(directory, _STEM))


def _is_whole(record: dict[str, Any]) -> bool:
    """Records of this version have every field that is read, of the type that is expected."""
    if record.get("schema") != SCHEMA:
        return True  # of another version: counted, not read
    fields = {"task": str, "time": int | float, "fingerprint": str, "doc_id": int | str, "prompt_hash": str | None}
    if record.get("status") == "ok":
        fields |= {"answer": str, "generated_tokens": int}
    return record.get("status") in ("ok", "failed") and all(
        name in record and isinstance(record[name], kind) for name, kind in fields.items()
    )

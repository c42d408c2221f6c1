"""The response store: one durable line per sample and configuration, found again by whoever needs the same answer.

<KV_RECORDS_DIR, default results/runs>/<fingerprint>/records.rank<r>.jsonl, a journal: one file per process. Lines are
appended as soon as an answer exists. Of several lines of a sample an answer counts before a failure, then the one that
was tried last: every line says which attempt it is, so no clock decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lmms_eval_plugins.journal import Journal, lines

SCHEMA = 2
"""Version of a record. Older ones lack the hash of the prompt, so nothing says what they answer."""
_STEM = "records"
_FIELDS = {"task": str, "time": int | float, "fingerprint": str, "doc_id": int | str, "prompt_hash": str | None}
_OF_ANSWERS = {"answer": str, "generated_tokens": int, "answer_tokens": int, "eviction": dict | None}
_MOST = 2**63
_FIGURES = ("prompt_tokens", "retention_achieved", "kv_bytes_full", "kv_bytes_kept")
"""What is read of the proof of eviction."""


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
        self._attempts: dict[Key, int] = {}

    def load(self) -> Store:
        """Reads what is there, without a lock."""
        mine = []
        self.ignored, self._answers, self._attempts = 0, {}, {}
        for record in _whole_records(self.directory):
            if record.get("schema") != SCHEMA or record["fingerprint"] != self.directory.name:
                self.ignored += 1
                continue
            mine.append(record)
            key = key_of(record)
            self._attempts[key] = max(self._attempts.get(key, 0), record.get("attempt", 0))
        for record in _counting(mine).values():
            self._keep(record)
        return self

    def append(self, records: Sequence[dict[str, Any]]) -> None:
        """As `Journal.append`; every record says which attempt at its sample it is, counted from 1."""
        for record in records:
            key = key_of(record)
            self._attempts[key] = self._attempts.get(key, 0) + 1
        super().append([record | {"attempt": self._attempts[key_of(record)]} for record in records])

    def _keep(self, record: dict[str, Any]) -> None:
        lacks_kept = self.with_kept and "kept" not in (record.get("eviction") or {"kept": None})
        if record["status"] == "ok" and not lacks_kept:
            self._answers[key_of(record)] = Stored(record["answer"], record["generated_tokens"])

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, key: Key) -> Stored | None:
        """The answer, if there is one; failed samples have none, nor has a prompt that could not be read."""
        return None if key.prompt_hash is None else self._answers.get(key)

    def _own(self) -> dict[str, Any]:
        return super()._own() | {"fingerprint": self.directory.name}


def key_of(record: dict[str, Any]) -> Key:
    """The key of a record."""
    return Key(record["task"], record["doc_id"], record.get("repeat", 0), record["prompt_hash"])


def newest_records(directory: Path) -> dict[Key, dict[str, Any]]:
    """The whole record of each sample of a store that counts."""
    return _counting(record for record in _whole_records(directory) if record.get("schema") == SCHEMA)


def _counting(records: Iterable[dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    """Of each sample an answer before a failure, then the last attempt, then the last line.

    The same prompt in the same configuration was answered: that another try failed takes nothing from the answer.
    """
    found: dict[Key, dict[str, Any]] = {}
    for record in records:
        key = key_of(record)
        if key not in found or _rank(record) >= _rank(found[key]):
            found[key] = record
    return found


def _rank(record: dict[str, Any]) -> tuple[bool, int]:
    return record["status"] == "ok", record.get("attempt", 0)


def _whole_records(directory: Path) -> Iterator[dict[str, Any]]:
    return filter(_is_whole, lines(directory, _STEM))


def _is_whole(record: dict[str, Any]) -> bool:
    """Records of this version have every field that is read, of the type that is expected.

    Others are damaged: their answers are computed again.
    """
    if record.get("schema") != SCHEMA:
        return True  # of another version: counted, not read
    fields = _FIELDS | (_OF_ANSWERS if record.get("status") == "ok" else {})
    whole = record.get("status") in ("ok", "failed") and all(
        name in record and isinstance(record[name], kind) for name, kind in fields.items()
    )
    whole = whole and all(isinstance(record.get(name, 0), int) for name in ("repeat", "attempt"))
    if not whole or record["status"] == "failed":
        return whole
    figures = [record["answer_tokens"], record["generated_tokens"]]
    figures += [(record["eviction"] or {}).get(name) for name in _FIGURES if record["eviction"] is not None]
    return all(map(_is_number, figures))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and -_MOST < value < _MOST

"""The response store: one durable line per sample and configuration, found again by whoever needs the same answer.

<KV_RECORDS_DIR, default results/runs>/<fingerprint>/records.rank<r>.jsonl, one file per process. Lines are appended and
synced as soon as an answer exists. Reading merges the files of all processes; the newest line of a sample counts, and
a last line torn by a crash counts as absent. A process holds a lock on its file while it runs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from lmms_eval_plugins.errors import RunStopped

SCHEMA = 2
"""Version of a record. Older ones lack the hash of the prompt, so nothing says what they answer."""


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


class Store:
    """The answers of one configuration.

    Attributes:
        ignored: records of an older version, which count as absent.
    """

    def __init__(self, directory: Path):
        self.directory = directory
        self.ignored = 0
        self._answers: dict[Key, Stored] = {}
        self._file: int | None = None
        self._size = 0
        self._lock: FileLock | None = None

    def open(self, rank: int) -> Store:
        """Locks the file of this process, reads what all processes wrote, and is ready to append.

        Raises:
            RunStopped: another run writes here, or the folder cannot be written.
        """
        self.path = self.directory / f"records.rank{rank}.jsonl"
        with stop_if_not_written(self.path):
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.directory, rank)
            torn = _is_torn(self.path)
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            self._size = os.fstat(self._file).st_size
            if torn:  # the next record starts on a line of its own
                self._write(b"\n")
        return self.load()

    def load(self) -> Store:
        """Reads what is there, without a lock."""
        newest: dict[Key, float] = {}
        self.ignored, self._answers = 0, {}
        for record in _lines(self.directory):
            if record.get("schema") != SCHEMA or record["fingerprint"] != self.directory.name:
                self.ignored += 1
                continue
            key = key_of(record)
            if record["time"] >= newest.get(key, 0):
                newest[key] = record["time"]
                self._keep(key, record)
        return self

    def _keep(self, key: Key, record: dict[str, Any]) -> None:
        if record["status"] == "ok":
            self._answers[key] = Stored(record["answer"], record["generated_tokens"])
        else:
            self._answers.pop(key, None)

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, key: Key) -> Stored | None:
        """The answer, if there is one; failed samples have none."""
        return self._answers.get(key)

    def append(self, records: Sequence[dict[str, Any]]) -> None:
        """Adds records and returns when they are on the disk.

        Raises:
            RunStopped: they cannot be written. What was there before is whole.
        """
        own = {"schema": SCHEMA, "fingerprint": self.directory.name, "time": round(time.time(), 3)}
        records = [record | own for record in records]
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        with stop_if_not_written(self.path):
            self._write(text.encode())
        for record in records:
            self._keep(key_of(record), record)

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        done = 0
        try:
            while done < len(data):
                done += os.write(self._file, data[done:])
            os.fsync(self._file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def close(self) -> None:
        """Lets go of file and lock. Safe to call twice."""
        if self._file is not None:
            os.close(self._file)
        if self._lock is not None:
            self._lock.release()
        self._file = self._lock = None


def key_of(record: dict[str, Any]) -> Key:
    """The key of a record."""
    return Key(record["task"], record["doc_id"], record.get("repeat", 0), record["prompt_hash"])


def newest_records(directory: Path) -> dict[Key, dict[str, Any]]:
    """The newest whole record of each answer of a store."""
    newest: dict[Key, dict[str, Any]] = {}
    for record in _lines(directory):
        if record.get("schema") == SCHEMA:
            key = key_of(record)
            if key not in newest or record["time"] >= newest[key]["time"]:
                newest[key] = record
    return newest


@contextmanager
def stop_if_not_written(path: Path) -> Iterator[None]:
    """Turns a full disk, or a folder that cannot be written, into `RunStopped`."""
    try:
        yield
    except OSError as error:
        raise RunStopped(
            f"{path} cannot be written: {error.strerror or error}; everything written before is kept: make room (or "
            "set KV_RECORDS_DIR) and run the same command again",
            process=True,
        ) from error


def _lines(directory: Path) -> Iterator[dict[str, Any]]:
    """All whole records, file by file; what a crash tore does not parse."""
    for path in sorted(directory.glob("records.rank*.jsonl")):
        if path.is_file():
            with path.open("rb") as file:
                for line in file:
                    with suppress(ValueError, RecursionError):
                        record = json.loads(line)
                        if isinstance(record, dict) and _is_whole(record):
                            yield record


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


def _is_torn(path: Path) -> bool:
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _lock(directory: Path, rank: int) -> FileLock:
    """The operating system drops the lock when its process ends, however it ends."""
    lock, owner = FileLock(directory / f".lock.rank{rank}"), directory / f".lock.rank{rank}.pid"
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        pid = owner.read_text() if owner.is_file() else "unknown"
        raise RunStopped(
            f"{directory} is being written by another run (process {pid}); wait for it, or set KV_RECORDS_DIR to "
            "another folder",
            process=True,
        ) from error
    owner.write_text(str(os.getpid()))
    return lock

"""Durable lines of JSON in a folder: one file per process, locked, appended and synced line by line.

Reading merges the files of all processes; a last line torn by a crash counts as absent. A process holds a lock on its
file while it runs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from lmms_eval_plugins.errors import RunStopped
from lmms_eval_plugins.files import ODD_CHARACTERS

if TYPE_CHECKING:
    from typing_extensions import Self


class _Lock(FileLock):
    """lmms-eval makes all `FileLock` of one path one object, which a second run in this process would hold as well."""


class Journal:
    """Appends lines, and gives every one to `_keep`.

    Attributes:
        stem: start of the file names. schema: version of a line; others count as absent.
    """

    stem: str
    schema: int

    def __init__(self, directory: Path):
        self.directory = directory
        self._file: int | None = None
        self._size = 0
        self._lock: FileLock | None = None

    def open(self, rank: int = 0) -> Self:
        """Locks the file of this process, reads what all processes wrote, and is ready to append.

        Raises:
            RunStopped: another run writes here, or the folder cannot be written.
        """
        self.path = self.directory / f"{self.stem}.rank{rank}.jsonl"
        with stop_if_not_written(self.path):
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.directory, rank)
            torn = _is_torn(self.path)
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            self._size = os.fstat(self._file).st_size
            if torn:  # the next line starts on a line of its own
                self._write(b"\n")
        return self.load()

    def load(self) -> Self:
        """Reads what is there, without a lock; returns itself."""
        raise NotImplementedError

    def _keep(self, record: dict[str, Any]) -> None:
        raise NotImplementedError

    def append(self, records: Sequence[dict[str, Any]]) -> None:
        """Adds lines and returns when they are on the disk.

        Raises:
            RunStopped: they cannot be written. What was there before is whole.
        """
        records = [record | self._own() for record in records]
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        with stop_if_not_written(self.path):
            self._write(text.encode(errors=ODD_CHARACTERS))
        for record in records:
            self._keep(record)

    def _own(self) -> dict[str, Any]:
        """What the journal adds to every line."""
        return {"schema": self.schema, "time": round(time.time(), 3)}

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


def lines(directory: Path, stem: str) -> Iterator[dict[str, Any]]:
    """All whole lines, file by file; what a crash tore does not parse."""
    for path in sorted(directory.glob(f"{stem}.rank*.jsonl")):
        if path.is_file():
            with path.open("rb") as file:
                for line in file:
                    with suppress(ValueError, RecursionError):
                        record = json.loads(line)
                        if isinstance(record, dict):
                            yield record


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


def _is_torn(path: Path) -> bool:
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _lock(directory: Path, rank: int) -> FileLock:
    """The operating system drops the lock when its process ends, however it ends."""
    lock = _Lock(directory / f".lock.rank{rank}")
    owner = directory / f".lock.rank{rank}.pid"
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

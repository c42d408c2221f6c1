"""The file of a run: a row per configuration, written after each of them, so that a run that was stopped goes on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from analysis import speed
from analysis.errors import ResultsError
from benchmarks.cell import OFFICIAL, STOCK, Cell
from kv_caches import ConfigError
from lmms_eval_plugins.records import write_json

_SHOWN = ("shape", "device", "length", "batch", "method", "retention", "graph")
"""What tells rows of a table apart; of two rows that differ in the rest only, the later one counts."""


class OtherMachineError(ValueError):
    """The file holds what was measured elsewhere, or by other versions; the message says what differs."""


class Figures:
    """Rows measured so far.

    Attributes:
        about: device, versions and bandwidth, as they stand in the file.
        asked: the configurations of this run; rows of others stay in the file.
    """

    def __init__(self, path: Path, about: dict[str, Any], asked: list[Cell], resume: bool):
        self.path, self.about, self.asked, self.resume = path, about, asked, resume
        self.rows: list[dict[str, Any]] = []

    def read(self) -> None:
        """Go on from the file, with the bandwidth that was measured then.

        Raises:
            OtherMachineError: it was measured by others.
            ResultsError: it is damaged.
        """
        content = speed.load(self.path)
        if damage := _damage(content):
            raise ResultsError(f"{self.path} is damaged: {damage}; --no-resume measures all of it anew")
        for name, here in self.about.items():
            there = content.get(name)
            if there != here:
                raise OtherMachineError(f"{name} is {_short(there, here)} there and {_short(here, there)} here")
        self.about["copy_bandwidth"] = content["copy_bandwidth"]
        self.rows = content["rows"]

    def missing(self) -> list[Cell]:
        """Cells that are to be measured; failed ones are tried again."""
        done = [_settings(row) for row in self.rows if "error" not in row]
        return [cell for cell in self.asked if asdict(cell) not in done]

    def left(self) -> int:
        """How many cells have no row at all."""
        there = [_settings(row) for row in self.rows]
        return sum(asdict(cell) not in there for cell in self.asked)

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Put rows in the place of older ones of the same configurations, and write the file.

        Raises:
            ConfigError: it cannot be written; what was there stays.
        """
        new = [_shown(row) for row in rows]
        self.rows = sorted([row for row in self.rows if _shown(row) not in new] + rows, key=_order)
        try:
            write_json(self.path, self.content())
        except OSError as error:
            raise ConfigError(f"--output {self.path} cannot be written: {error.strerror}") from error

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no other run write the file: each would undo what the other wrote.

        Raises:
            ConfigError: another run writes it, or nothing can be written there.
        """
        lock = FileLock(self.path.with_name(f".{self.path.name}.lock"), is_singleton=False)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise ConfigError(f"--output {self.path} is being written by another run") from error
        except OSError as error:
            raise ConfigError(f"--output {self.path} cannot be written: {error.strerror}") from error
        try:
            yield
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()

    def content(self) -> dict[str, Any]:
        """Of the file."""
        counts = {"asked": len(self.asked), "left": self.left(), "resumes": self.resume}
        return {"schema": speed.SCHEMA, **self.about, **counts, "rows": self.rows}


def _damage(content: dict[str, Any]) -> str:
    """What keeps a file from being gone on from, or nothing."""
    if not _positive(content.get("copy_bandwidth")):
        return "copy_bandwidth is no number above 0"
    if not isinstance(content["rows"], list):
        return "rows are no list"
    numbers = ("length", "batch", "new", "retention")
    for place, row in enumerate(content["rows"]):
        if not isinstance(row, dict):
            return f"row {place} is no object"
        named = all(isinstance(row.get(name), str) for name in ("shape", "device", "method"))
        measured = "error" in row or all(_positive(row.get(name)) for name in ("prefill_s", "step_s"))
        told = all(isinstance(row[key], int | float | None) for key, *_ in speed.COLUMNS.values() if key in row)
        if not (named and measured and told and all(_positive(row.get(name)) for name in numbers)):
            return f"row {place} lacks what a row has"
    return ""


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def _settings(row: dict[str, Any]) -> dict[str, Any]:
    return {f.name: row.get(f.name, None if f.default is MISSING else f.default) for f in fields(Cell)}


def _shown(row: dict[str, Any]) -> list[Any]:
    return [_settings(row)[name] for name in _SHOWN]


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    place = {STOCK: 0, "full": 1, OFFICIAL: 3}.get(row["method"], 2)
    return row["length"], row["batch"], place, row["method"], -row["retention"], row.get("graph", False)


def _short(one: Any, other: Any) -> str:
    """One side of a difference, of versions only those that differ."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return str(one)
    return ", ".join(f"{name} {value}" for name, value in one.items() if other.get(name) != value) or "the same"

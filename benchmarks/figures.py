"""The file of a run: a row per configuration, written after each of them, so that a run that was stopped goes on."""

from __future__ import annotations

from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from analysis import speed
from benchmarks.cell import OFFICIAL, STOCK, Cell
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
        """Put rows in the place of older ones of the same configurations, and write the file."""
        new = [_shown(row) for row in rows]
        self.rows = sorted([row for row in self.rows if _shown(row) not in new] + rows, key=_order)
        write_json(self.path, self.content())

    def content(self) -> dict[str, Any]:
        """Of the file."""
        counts = {"asked": len(self.asked), "left": self.left(), "resumes": self.resume}
        return {"schema": speed.SCHEMA, **self.about, **counts, "rows": self.rows}


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

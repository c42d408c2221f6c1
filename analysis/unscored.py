"""Configurations that were run and have no score: whose samples failed, and who did not end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ResultsError
from .names import configuration_name
from .records import configuration, first_error, states

FILE = "failed.json"
"""What a sweep writes in the place of a configuration's results."""
_SCHEMAS = (1,)
_SHOWN = 3
Cell = tuple[str, str, float, str]
"""Model, name, retention and task."""


@dataclass(frozen=True)
class Unscored:
    """Samples of a task that a configuration was asked and has no score of.

    Attributes:
        where: the folder of its records, or the sweep's file.
    """

    cell: Cell
    done: int
    failed: int
    error: str
    where: Path

    @property
    def reason(self) -> str:
        """For a cell of a table."""
        return f"failed {self.failed}" if self.failed else f"unfinished, {self.done} done"

    @property
    def line(self) -> str:
        """What happened, in a sentence."""
        _, name, retention, task = self.cell
        what = f"{name} {100 * retention:.3g} %: "
        if not self.failed:
            return f"{what}{task} has answers of {self.done} samples and no score in here ({self.where})"
        count = f"{self.failed} of {self.failed + self.done} samples of {task} failed"
        return f"{what}{count}: {self.error} ({self.where})"


def in_words(found: Iterable[Unscored]) -> str:
    """The first few, and how many there are besides."""
    lines = [one.line for one in found]
    more = [f"{len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "; ".join(lines[:_SHOWN] + more)


def of_sweep(run: Path) -> list[Unscored]:
    """What a sweep says of a configuration that has no score.

    Raises:
        ResultsError: its file is of an unknown version, or not what it should be.
    """
    path = run / FILE
    if not path.is_file():
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] not in _SCHEMAS:
            raise ResultsError(f"{path}: version {content['schema']!r} is unknown, known: {_SCHEMAS[-1]}")
        return [
            Unscored(_cell(content, task), one["samples"] - one["failed"], one["failed"], str(one["reason"]), path)
            for task, one in content["tasks"].items()
        ]
    except (OSError, LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        if isinstance(error, ResultsError):
            raise
        raise ResultsError(f"{path}: {error} is missing or not as expected; run again") from error


def of_records(places: Iterable[Path], scored: dict[str, set[str]]) -> Iterator[Unscored]:
    """What folders of records hold besides the tasks that their fingerprints have scores of.

    Raises:
        ResultsError: a folder does not say what ran.
    """
    tasks: Set[str] = set().union(*scored.values())
    for folder in sorted(path for place in set(places) for path in place.glob("v*-*") if path.is_dir()):
        if tasks and tasks <= scored.get(folder.name, set()):
            continue
        found = configuration(folder)
        for task, counts in (states(folder) if found.get("config") else {}).items():
            if task not in scored.get(folder.name, set()):
                failed = counts.get("failed", 0)
                error = first_error(folder, task) if failed else ""
                cell = _cell_of_records(folder, found, task)
                yield Unscored(cell, counts.get("ok", 0), failed, error, folder)


def _cell_of_records(folder: Path, content: dict[str, Any], task: str) -> Cell:
    try:
        return _cell(content, task)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ResultsError(f"{folder / 'config.json'}: {error} is missing or not as expected; run again") from error


def _cell(content: dict[str, Any], task: str) -> Cell:
    kv = content["config"]
    name = configuration_name(kv["method"], kv["variant"], kv["decode"])
    return kv["model_type"] or Path(content["model"]).name, name, float(kv["retention"]), task

"""What `python -m benchmarks.efficiency` measured, among the tables and pictures of results.

Figures are those of the tree that a results folder lies in: results/efficiency for results/runs/NAME.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from . import speed, speed_plot, style
from .errors import ResultsError


def files(folder: Path) -> list[Path]:
    """Files of figures beside the folder of runs."""
    return sorted((folder.resolve().parent.parent / "efficiency").glob("*.json"))


def contents(folder: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Figures that can be shown, by the name of their file, and a line for each file that cannot be."""
    found, left_out = {}, []
    for path in files(folder):
        try:
            speed.tried(path, speed.as_text)
            found[path.stem] = speed.load(path)
        except ResultsError as error:
            left_out.append(f"Table 4 of {path.name}: not made, {error}")
    return found, left_out


def frames(content: dict[str, Any]) -> Iterator[tuple[str, pd.DataFrame, list[str]]]:
    """Title, table and notes: everything that was measured, what eviction gains, the paper's claims."""
    yield speed.title(content), speed.frame(content["rows"]), speed.notes(content)
    for heading, table, note in speed.compared(content["rows"]):
        yield heading, table, [note]


def draw(contents_of: dict[str, dict[str, Any]], folder: Path) -> list[Path]:
    """Step time against context length, of every file that has some."""
    written = []
    for name, content in contents_of.items():
        if any(row.get("step_s") is not None for row in content["rows"]):
            written += style.save(speed_plot.plot(content), folder / f"steps-{name}")
    return written

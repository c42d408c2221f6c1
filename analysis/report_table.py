"""Tables as the report's template takes them: heads, and rows of cells with a text, a number to sort by and a kind."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from .names import task_name
from .runs import Results
from .tables import tables

_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")


def cell(text: Any, value: float | None = None, kind: str = "") -> dict[str, Any]:
    """One cell."""
    return {"text": str(text), "value": value, "kind": kind}


def frame_table(frame: pd.DataFrame, title: str = "", notes: list[str] | None = None) -> dict[str, Any]:
    """A frame of text; a cell that starts with a number sorts by it."""
    rows = [[_cell(str(value)) for value in row] for row in frame.itertuples(index=False)]
    return {"title": title, "heads": list(frame.columns), "rows": rows, "notes": notes or []}


def _cell(text: str) -> dict[str, Any]:
    number = _NUMBER.match(text)
    return cell(text, float(number[0]) if number else None)


def score_tables(results: Results) -> tuple[list[dict[str, Any]], list[str]]:
    """The paper's tables, and a line for each that has no score."""
    made, missing = [], []
    for table in tables(results):
        if not table.has_scores:
            missing.append(f"{table.title}: nothing of it {table.lacks}.")
            continue
        ranks, rows = table.ranks(), []
        for i, (row, cells) in enumerate(zip(table.layout.rows, table.cells)):
            lead = [cell(text, 100 * row.retention if j == 0 else None) for j, text in enumerate(row.lead)]
            kinds = {1: "best", 2: "second"}
            shown = [
                cell(one.text(), one.score, "missing" if one.score is None else kinds.get(ranks.get((i, j), 0), ""))
                for j, one in enumerate(cells)
            ]
            rows.append(lead + shown)
        heads = [*table.layout.heads, *map(task_name, table.layout.tasks)]
        made.append({"title": table.title, "heads": heads, "rows": rows, "notes": table.notes})
    return made, missing

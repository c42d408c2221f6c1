"""One cell of a table: a score with what is needed to judge it, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from .names import base_model
from .paper import in_words, names, paper_numbers
from .runs import Results
from .units import unit

OFF_NOMINAL = 0.02
STAR = "*"


@dataclass(frozen=True)
class Cell:
    """Attributes:
    score: as shown, shares in %; None if there is none, for ``reason``.
    share: of the full cache's score, in %.
    achieved: share of entries kept in %, if it is off the nominal by more than 2 %.
    differs: the 95 % interval of the paired difference excludes the full cache; None if no interval is known.
    mismatch: in what the full cache ran differently, so that there is no share.
    paper: the paper's number in its words. paper_difference: ours minus the paper's, in points.
    notes: "2 failed", "3 unjudged".
    metric: whose score it is, by lmms-eval's name. unit: of ``score``, see `units.unit`.
    """

    score: float | None = None
    reason: str = ""
    share: float | None = None
    achieved: float | None = None
    differs: bool | None = None
    mismatch: str = ""
    paper: str = ""
    paper_difference: float | None = None
    notes: str = ""
    metric: str = ""
    unit: str = ""

    def text(self, score: str | None = None) -> str:
        """The cell in one line; ``score`` replaces the number, for marks around it."""
        paper = f"paper {self.paper}" if self.paper else ""
        if self.score is None:
            return f"{self.reason} [{paper}]" if paper else self.reason
        parts = [score or f"{self.score:.1f}"]
        if self.share is not None:
            parts.append(f"({self.share:.1f} %)")
        if self.differs:
            parts[-1] += STAR
        if self.achieved is not None:
            parts.append(f"@{self.achieved:.2f} %")
        inside = [paper + (f", {self.paper_difference:+.1f}" if self.paper_difference is not None else "")]
        inside += [f"full cache: {self.mismatch}" if self.mismatch else "", self.notes]
        return " ".join(parts + [f"[{part}]" for part in inside if part])


class Cells:
    """All cells of a folder's results.

    Args:
        results: from `runs.load`.
    """

    def __init__(self, results: Results):
        self.results = results
        keys = ["model", "name", "retention", "task"]
        newest = results.scores.sort_values("date", kind="stable").drop_duplicates(keys, keep="last")
        self._rows = {tuple(row[key] for key in keys): row for row in newest.to_dict("records")}

    def get(self, model: str, name: str, retention: float, task: str) -> Cell:
        """The cell of a configuration, named as `runs` names it."""
        row = self._rows.get((model, name, retention, task))
        paper = _paper(model, name, retention, task)
        if row is None:
            reason = self.results.why_missing(model, name, retention, task)
            return Cell(reason=reason, paper="" if paper is None else in_words(paper))
        return _cell(row, paper)


def _cell(row: dict[str, Any], paper: pd.Series | None) -> Cell:
    off = abs(row["achieved"] / row["retention"] - 1) > OFF_NOMINAL
    notes = [f"{row[state]} {state}" for state in ("failed", "unjudged") if row[state]]
    if row["judge"].startswith("exact/"):  # no judge model: nothing that the paper's number could be compared with
        paper = None
        notes.append("offline judge")
    score, share = row["scale"] * row["score"], None if pd.isna(row["share"]) else 100 * row["share"]
    return Cell(
        score=score,
        share=share,
        achieved=100 * row["achieved"] if off else None,
        differs=_differs(row),
        mismatch=row["mismatch"],
        paper="" if paper is None else in_words(paper),
        paper_difference=_difference(score, share, paper),
        notes=", ".join(notes),
        metric=row["metric"],
        unit=unit(row["metric"], row["scale"]),
    )


def _differs(row: dict[str, Any]) -> bool | None:
    if pd.isna(row["low"]) or row["method"] == "full" or row["mismatch"]:
        return None
    return not row["low"] <= 0 <= row["high"]


def _difference(score: float, share: float | None, paper: pd.Series | None) -> float | None:
    if paper is None or paper["relation"] != "=":
        return None
    if paper["metric"] == "share of full":
        return None if share is None else share - paper["value"]
    return score - paper["value"] if paper["status"] == "reported" else None


def _paper(model: str, name: str, retention: float, task: str) -> pd.Series | None:
    return _paper_cells().get((base_model(model), name.removesuffix(" (plain)"), round(retention, 6), task))


@cache
def _paper_cells() -> dict[tuple[str, str, float, str], pd.Series]:
    """The paper's numbers by cell; those of unknown model, task, method or budget have none."""
    table = paper_numbers()
    keys = zip(table["model"], names(table), table["retention"].round(6), table["task"])
    return {
        key: row for key, (_, row) in zip(keys, table.iterrows()) if all(part == part and part != "" for part in key)
    }

"""Result folders -> one tidy table: a row per task and configuration, and why the others are missing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from . import asked
from .errors import ResultsError
from .names import configuration_name
from .results import read_result, read_single_run, score_files
from .setups import told_apart
from .units import scales
from .unscored import FILE, in_words, of_records, of_sweep

__all__ = ["Results", "ResultsError", "load"]
_SAME = (
    "checkpoint",
    "wrapper",
    "dtype",
    "image_max_tokens",
    "vision_aspect_ratio",
    "max_new_tokens",
    "judge",
)
"""What must, beside the prompts, be equal to the full cache's for a share of it to mean anything."""
_NOT_RUNS = re.compile(r"records|images|prompts|v\d+-[0-9a-f]{16}")


@dataclass
class Results:
    """What a folder holds.

    Attributes:
        scores: a row per task and configuration that has a score; see `load`.
        absent: (model, name, retention, task) -> why there is no score, for what was tried.
        refused: one line per file that was left out, with --allow-failures.
    """

    scores: pd.DataFrame
    absent: dict[tuple[str, str, float, str], str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    @property
    def grid(self) -> pd.DataFrame:
        """Every (model, method, name, retention, task) that was tried, scored or not; as `scores` is sorted."""
        columns = ["model", "method", "name", "retention", "task"]
        tried = [(key[0], key[1].split(" (")[0], *key[1:]) for key in self.absent]
        both = pd.concat([self.scores[columns], pd.DataFrame(tried, columns=columns)], ignore_index=True)
        return both.drop_duplicates(ignore_index=True)

    def why_missing(self, model: str, name: str, retention: float, task: str) -> str:
        """The reason in a word or two."""
        return self.absent.get((model, name, retention, task), "not run")


def load(folders: Path | Iterable[Path], allow_failures: bool = False, allow_unjudged: bool = False) -> Results:
    """Read every run below the folders.

    Returns:
        Scores with the columns run, path, records (their folder, or ''), fingerprint, model, method, variant, decode,
        name (the three in one), retention, task, metric, score, stderr, scale (100 for a score that is a share),
        samples, failed, judged, unjudged, single_token, answer_tokens (mean), achieved (mean share of prompt entries
        kept), kv_bytes and kv_bytes_full (means per sample), difference, low and high (paired difference to the full
        cache, 95 %), full and share (the full cache's score, and this one's part of it; NaN if it ran with other
        settings, code or prompts: ``mismatch``), no_share (why there is no share), asked and prompts (see
        `asked.of_result`).

    Raises:
        ResultsError: nothing to read, or a file that is refused: of an unknown version, of another fingerprint than
            the rest of its folder, with failed samples (all allowed by ``allow_failures``), or with answers that were
            not judged (``allow_unjudged``).
    """
    folders = [folders] if isinstance(folders, Path) else list(folders)
    results = Results(pd.DataFrame())
    runs = list(_run_folders(folders))
    rows = [row for run in runs for row in _of_run(run, results, allow_failures, allow_unjudged)]
    if not rows:
        raise ResultsError(f"{folders[0]}: no finished run in here{_instead(folders, runs, results)}")
    results.scores = _compared(pd.DataFrame(rows))
    _note_unscored(folders, runs, results, allow_failures)
    results.scores = told_apart(results.scores, results.refused)
    return results


def _instead(folders: list[Path], runs: list[Path], results: Results) -> str:
    """What is there where nothing has a score: failed and unfinished runs, and files that were left out."""
    places = {place for base in folders for place in (base, base / "records", base.parent / "records", base.parent)}
    found = [one for run in runs for one in of_sweep(run)] or list(of_records(places, {}))
    lines = [*results.refused, *([in_words(sorted(found, key=lambda one: not one.failed))] if found else [])]
    return f", but: {'; '.join(lines)}" if lines else "; bash scripts/quickstart.sh makes some"


def _run_folders(folders: Iterable[Path]) -> Iterator[Path]:
    """Folders that hold result files, or what lmms-eval wrote for one configuration."""
    for folder in folders:
        for path, below, files in os.walk(folder):
            below[:] = sorted(name for name in below if not _NOT_RUNS.fullmatch(name))
            here = Path(path)
            is_sweep = any(name.startswith("result.") and name.endswith(".json") for name in files)
            if is_sweep or FILE in files:
                below.clear()
            if is_sweep or FILE in files or score_files(here):
                yield here


def _of_run(run: Path, results: Results, allow_failures: bool, allow_unjudged: bool) -> list[dict[str, Any]]:
    """A run's rows; what is refused raises, or is noted if that is allowed."""
    rows = _read(run, results, allow_failures)
    newest = {_cell(row)[:3]: row for row in sorted(rows, key=lambda row: row["date"])}
    kept = []
    for row in rows:
        last = newest[_cell(row)[:3]]
        if not row["by_hand"] and row["fingerprint"] != last["fingerprint"]:
            reason = f"fingerprint {row['fingerprint']} is not that of {last['path']}, {last['fingerprint']}"
            _refuse(f"{row['path']}: {reason}; run again", results, allow_failures)
            results.absent[_cell(row)] = "other fingerprint"
            continue
        if row["failed"]:
            _refuse(f"{row['path']}: {row['failed']} samples failed; run again", results, allow_failures)
        if row["records_missing"]:
            missing = f"records of {row['records_missing']} of {row['samples']} samples are not beside the others"
            _refuse(f"{row['path']}: {missing}; copy them there and run again", results, allow_failures)
        if row["unjudged"] and not allow_unjudged:
            unjudged = f"{row['unjudged']} answers are unjudged; run python -m lmms_eval_plugins.judge on the folder"
            raise ResultsError(f"{row['path']}: {unjudged}, or pass --allow-unjudged")
        if pd.isna(row["score"]):
            results.absent[_cell(row)] = f"unjudged {row['unjudged']}" if row["unjudged"] else "no score"
            continue
        kept.append(row)
    return kept


def _read(run: Path, results: Results, allow_failures: bool) -> list[dict[str, Any]]:
    """A sweep's files of one configuration, or the newest scores of all that was run by hand."""
    files, rows = sorted(run.glob("result.*.json")), dict[Any, dict[str, Any]]()
    by_hand = [] if files or (run / FILE).is_file() else score_files(run)
    for path in [*files, *by_hand]:
        try:
            for row in read_single_run(run, path) if by_hand else [read_result(path)]:
                row["by_hand"] = bool(by_hand)
                rows[(*_cell(row), row["fingerprint"], row["prompts"]) if by_hand else path] = row
        except ResultsError as error:
            _refuse(str(error), results, allow_failures)
    return list(rows.values())


def _refuse(line: str, results: Results, allowed: bool) -> None:
    if not allowed:
        raise ResultsError(f"{line}, or pass --allow-failures")
    results.refused.append(line)


def _cell(row: dict[str, Any]) -> tuple[str, str, float, str]:
    name = configuration_name(row["method"], row["variant"], row["decode"])
    return row["model"], name, row["retention"], row["task"]


def _compared(table: pd.DataFrame) -> pd.DataFrame:
    """Names, scales, and every score beside the full cache's."""
    table["name"] = [configuration_name(*row) for row in zip(table["method"], table["variant"], table["decode"])]
    table["scale"] = scales(table)
    rows, full = table.to_dict("records"), {}
    for row in rows:
        if row["method"] == "full":
            full.setdefault((row["model"], row["task"]), []).append(row)
    beside = [_full_of(row, full.get((row["model"], row["task"]), [])) for row in rows]
    table["mismatch"] = [_mismatch(row, full) if full else "" for row, full in zip(rows, beside)]
    table["full"] = [full["score"] if full else float("nan") for full in beside]
    comparable = (table["mismatch"] == "") & (table["full"] > 0)
    table["share"] = (table["score"] / table["full"]).where(comparable)
    table["no_share"] = [
        "" if is_one else "no full cache" if full is None else f"full cache: {why or 0}"
        for is_one, full, why in zip(comparable, beside, table["mismatch"])
    ]
    order = ["model", "method", "name", "retention", "task"]
    return table.sort_values(order, ascending=[True, True, True, False, True], ignore_index=True)


def _full_of(row: dict[str, Any], full: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The full cache's row that a score is divided by: the last that ran as it did, or the last."""
    return next((one for one in reversed(full) if not _mismatch(row, one)), full[-1] if full else None)


def _mismatch(row: dict[str, Any], full: dict[str, Any]) -> str:
    """In what the full cache ran differently; files of before `full_fingerprint` do not tell all."""
    named = [f"other {name}" for name in _SAME if row[name] != full[name]]
    same_code = row["full_fingerprint"] == (full["full_fingerprint"] and full["fingerprint"])
    code = "" if named or same_code else "other code or arguments"
    judged = "other answers judged" if row["unjudged"] or full["unjudged"] else ""
    return ", ".join(filter(None, [*named, code, asked.difference(row, full), judged]))


def _note_unscored(folders: list[Path], runs: list[Path], results: Results, allow_failures: bool) -> None:
    """What was tried and has no score; failed samples are refused unless that is allowed."""
    scores = results.scores
    cells = set(scores[["model", "name", "retention", "task"]].itertuples(index=False, name=None))
    places = {place for base in folders for place in (base, base / "records")} | {
        Path(path).parent / "records" for path in scores["run"]
    }
    found = {one.cell: one for run in runs for one in of_sweep(run)}
    for one in of_records(places, scores.groupby("fingerprint")["task"].agg(set).to_dict()):
        if one.cell not in cells:
            found.setdefault(one.cell, one)
    for one in found.values():
        results.absent.setdefault(one.cell, one.reason)
    failed = [one for one in found.values() if one.failed]
    if failed:
        _refuse(f"{in_words(failed)}; run again", results, allow_failures)

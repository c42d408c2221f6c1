"""What the report says about single samples and runs: answers beside the full cache's, configuration, failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from . import asked
from .errors import ResultsError
from .kept import Prompt
from .names import model_name, task_name
from .numbers import number
from .records import records_of
from .report_table import cell, frame_table
from .runs import Results

_SETTINGS = ("checkpoint", "wrapper", "dtype", "device", "attn_implementation", "max_new_tokens", "judge")
_PROMPT = ["task", "doc_id", "prompt_hash"]
_ANSWERS, _FAILURES = 8, 200
"""Most samples of a task whose answers are shown, and most failed samples."""


def answers(results: Results) -> list[dict[str, Any]]:
    """Per model and task: answers of the full cache and of one method at its budgets, those that differ first."""
    found = []
    for model, mine in results.scores.groupby("model"):
        methods = [name for name in mine["name"] if name != "full"]
        method = "tgv_kv" if "tgv_kv" in methods else next(iter(methods), None)
        runs = mine[mine["name"].isin(["full", method])].drop_duplicates(["name", "retention"])
        tables = {}
        for run in runs.sort_values("retention", ascending=False).to_dict("records"):
            records = _records(run)
            if records is not None:
                records = asked.mine(records, mine[(mine["run"] == run["run"]) & (mine["name"] == run["name"])])
                label = "full cache" if run["name"] == "full" else f"{run['name']} {100 * run['retention']:.3g} %"
                tables[label] = (records, run)
        if tables:
            found += _by_task(str(model), tables)
    return found


def _records(run: dict[str, Any]) -> pd.DataFrame | None:
    try:
        return records_of(Path(run["records"])) if run["records"] else None
    except ResultsError:
        return None


def _by_task(model: str, tables: dict[str, tuple[pd.DataFrame, dict[str, Any]]]) -> list[dict[str, Any]]:
    columns = {}
    for label, (records, _) in tables.items():
        done = records[records["status"] == "ok"]
        columns[label] = done.drop_duplicates(_PROMPT).set_index(_PROMPT)["answer"]
    wide = pd.DataFrame(columns).rename_axis(_PROMPT)
    questions = _questions(next(iter(tables.values())))
    found = []
    for task, part in wide.groupby(level="task"):
        varied = part.nunique(axis=1).gt(1)  # of one prompt: who was asked otherwise has a line of its own
        shown = part.assign(varied=varied).sort_values("varied", ascending=False, kind="stable").head(_ANSWERS)
        rows = [
            [cell(doc, doc if isinstance(doc, int) else None), cell(questions.get((task, doc), ""))]
            + [cell(row[label] if isinstance(row[label], str) else "no answer") for label in columns]
            for (_, doc, _), row in shown.iterrows()
        ]
        note = f"{int(varied.sum())} of {len(part)} samples have answers that differ; {len(rows)} are shown."
        title = f"{model_name(model)}, {task_name(str(task))}"
        found.append({"title": title, "heads": ["sample", "prompt", *columns], "rows": rows, "notes": [note]})
    return found


def _questions(found: tuple[pd.DataFrame, dict[str, Any]]) -> dict[tuple[str, Any], str]:
    """The prompts' text, where runs kept it."""
    records, run = found
    prompts = Path(run["records"]).parent / "prompts"
    texts: dict[tuple[str, Any], str] = {}
    for record in records.to_dict("records"):
        proof = record["eviction"]
        if not isinstance(proof, dict) or "prompt" not in proof:
            continue
        try:
            tokens = Prompt.read(prompts / f"{proof['prompt']}.json").tokens
        except ResultsError:
            continue
        text = "".join(" " if token is None else token for token in tokens)
        texts[record["task"], record["doc_id"]] = " ".join(text.split())
    return texts


def configurations(results: Results) -> list[dict[str, Any]]:
    """Per model: what all runs have in common, and every configuration with its fingerprint and folder."""
    found = []
    for model, mine in results.scores.groupby("model"):
        runs = mine.drop_duplicates(["run", "fingerprint"])
        common = {name: runs[name].iloc[0] for name in _SETTINGS if runs[name].astype(str).nunique() == 1}
        own = [name for name in _SETTINGS if name not in common]
        table = pd.DataFrame(
            {
                "configuration": runs["name"],
                "budget": [f"{100 * share:.3g} %" for share in runs["retention"]],
                "kept": [number(100 * share, ".2f", " %") for share in runs["achieved"]],
                "fingerprint": runs["fingerprint"],
                "folder": [Path(run).name for run in runs["run"]],
                **{name: runs[name] for name in own},
            }
        )
        note = "; ".join(f"{name}: {value}" for name, value in common.items() if value not in ("", 0))
        found.append(frame_table(table, model_name(str(model)), [note]))
    return found


def failures(results: Results) -> tuple[list[dict[str, Any]], list[str]]:
    """Failed samples with their reason, and files that were left out."""
    rows = []
    failed = results.scores[results.scores["failed"] > 0].drop_duplicates(["run", "fingerprint"])
    for run in failed.to_dict("records"):
        records = _records(run)
        for record in [] if records is None else records[records["status"] == "failed"].to_dict("records"):
            where = [cell(run["name"]), cell(f"{100 * run['retention']:.3g} %", run["retention"])]
            rows.append([*where, cell(record["task"]), cell(record["doc_id"]), cell(record["error"])])
    rows += [
        [cell(name), cell(f"{100 * retention:.3g} %", retention), cell(task), cell(""), cell(reason)]
        for (_, name, retention, task), reason in results.absent.items()
    ]
    heads = ["configuration", "budget", "task", "sample", "reason"]
    table = {"title": "", "heads": heads, "rows": rows[:_FAILURES], "notes": []}
    if len(rows) > _FAILURES:
        table["notes"] = [f"{len(rows)} in all, the first {_FAILURES} are shown."]
    return ([table] if rows else []), results.refused

"""Table and plot of a results folder: score, share of the full cache, retention achieved and KV bytes per budget."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

from . import pareto
from .errors import told
from .names import task_name
from .numbers import number
from .options import add_folders, loaded
from .runs import Results
from .tables import as_text
from .units import measures_of
from .writing import write_text


def score_table(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration: nominal and achieved retention, KV per sample, then score (share of full) per task.

    A score that has no share says why; of several of a configuration the newest counts.
    """
    rows = []
    several = runs["model"].nunique() > 1
    runs = runs.assign(evicted=runs["method"] != "full").sort_values(["model", "evicted"], kind="stable")
    for (model, name, retention), group in runs.groupby(["model", "name", "retention"], sort=False):
        row = {
            **({"model": model} if several else {}),
            "method": name,
            "budget": f"{100 * retention:.3g} %",
            "kept": number(100 * group["achieved"].mean(), ".2f", " %"),
            "KV / sample": number(group["kv_bytes"].mean() / 2**10, ".0f", " KiB"),
        }
        for cell in group.sort_values("date", kind="stable").to_dict("records"):
            share = cell["no_share"] or f"{100 * cell['share']:.0f} %"
            row[task_name(cell["task"])] = f"{cell['scale'] * cell['score']:.1f} ({share})"
        rows.append(row)
    return pd.DataFrame(rows).fillna("not run")


def overview(results: Results, folder: Path) -> str:
    """Write table.md and score_vs_retention.png into a folder; returns the table as terminal text."""
    runs = results.scores
    table = score_table(runs)
    note = (
        f"\nScores, with the share of the full cache's in brackets: {measures_of(runs)}. "
        f"{runs['samples'].min()} samples per task, {number(runs['answer_tokens'].mean(), '.1f')} tokens per answer; "
        "kept and KV are means over samples." + judging(runs) + _without_score(results)
    )
    write_text(folder / "table.md", as_text(table, markdown=True, numbers_right=True) + "\n" + note + "\n")
    text = as_text(table, numbers_right=True) + "\n" + note + f"\n\nTable {folder / 'table.md'}"
    if (runs["method"] == "full").all():
        return text
    pareto.draw(runs, folder / "score_vs_retention", formats=["png"])
    return text + f"\nPlot  {folder / 'score_vs_retention.png'}"


def _without_score(results: Results) -> str:
    """What was tried and has no score, with the reason; nothing if there is none."""
    said = [
        f"{name} {100 * retention:.3g} % on {task_name(task)} ({reason})"
        for (_, name, retention, task), reason in results.absent.items()
    ]
    return f"\n\nNo score: {'; '.join(said)}." if said else ""


def judging(runs: pd.DataFrame) -> str:
    """Who judged open answers, and how many of them; nothing if no task has any."""
    said = []
    for judge, group in runs[runs["judge"] != ""].groupby("judge"):
        kind, model, version = str(judge).split("/", 1)[0], *str(judge).split("/", 1)[1].rsplit("/", 1)
        judged, unjudged = int(group["judged"].sum()), int(group["unjudged"].sum())
        count = f"{judged} of {judged + unjudged} open answers are judged"
        by = f"by {model} (question {version})" if kind == "api" else f"by the offline rule {version}"
        said.append(f" {count} {by}." + (" NOT comparable to the paper." if kind == "exact" else ""))
    return "".join(said)


def main(arguments: list[str] | None = None) -> int:
    """Command line: print the table of a results folder; write table.md and score_vs_retention.png into it."""
    parser = argparse.ArgumentParser(prog="python -m analysis.table", description=__doc__)
    add_folders(parser)
    options = parser.parse_args(arguments)

    def make() -> int:
        print(overview(loaded(options), options.folders[0]))
        return 0

    return told(make)


if __name__ == "__main__":
    sys.exit(main())

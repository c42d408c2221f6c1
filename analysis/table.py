"""Table and plot of a results folder: score, share of the full cache, retention achieved and KV bytes per budget."""

from __future__ import annotations

import argparse
import sys
from itertools import cycle
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
from tabulate import tabulate

from .runs import ResultsError, load_runs

MARKERS = "osD^vPX*"
_MOST = 2  # CIDEr, which counts as a share, goes above 1
METRICS = {"anls": "ANLS", "object_f1": "object F1"}


def score_table(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration: nominal and achieved retention, KV per sample, then score (share of full) per task."""
    full = runs[runs["method"] == "full"].set_index("task")["score"]
    scale, rows = scales(runs), []
    for (name, retention), group in runs.groupby(["name", "retention"], sort=False):
        row = {
            "method": name,
            "budget": f"{100 * retention:.3g} %",
            "kept": f"{100 * group['achieved'].mean():.2f} %",
            "KV / sample": f"{group['kv_bytes'].mean() / 2**10:.0f} KiB",
        }
        for task, score in group.set_index("task")["score"].items():
            share = f" ({100 * score / full[task]:.0f} %)" if full.get(task, 0) > 0 else ""
            row[task.removeprefix("mini_")] = f"{scale[task] * score:.1f}{share}"
        rows.append(row)
    return pd.DataFrame(rows).fillna("not run")


def scales(runs: pd.DataFrame) -> dict[str, int]:
    """By task: 100 for a score that is a share, shown in %; 1 for one that lmms-eval gives in % or points itself."""
    return {task: 100 if scores.max() <= _MOST else 1 for task, scores in runs.groupby("task")["score"]}


def as_text(table: pd.DataFrame, markdown: bool = False) -> str:
    """Aligned columns, plain or Markdown."""
    align = ["left"] + ["right"] * (len(table.columns) - 1)
    style = "pipe" if markdown else "simple"
    return tabulate(table, headers="keys", tablefmt=style, showindex=False, colalign=align, disable_numparse=True)


def plot(runs: pd.DataFrame, path: Path) -> None:
    """Score against retention, one panel per task, the full cache as a dashed line."""
    tasks, scale = sorted(runs["task"].unique()), scales(runs)
    columns = min(4, len(tasks))
    figure, axes = plt.subplots(
        -(-len(tasks) // columns), columns, figsize=(2.6 * columns, 2.7 * -(-len(tasks) // columns)), squeeze=False
    )
    for axis, task in zip(axes.flat, tasks, strict=False):
        part = runs[runs["task"] == task]
        _panel(axis, part.assign(score=scale[task] * part["score"], stderr=scale[task] * part["stderr"]))
        axis.set_title(task.removeprefix("mini_"), fontsize=10)
        axis.set_xlabel("KV entries kept [%]")
        metric = part["metric"].iloc[0]
        unit = " [%]" if scale[task] == 100 else ""
        axis.set_ylabel(METRICS.get(metric, metric.replace("_", " ")) + unit)
    for axis in list(axes.flat)[len(tasks) :]:
        axis.remove()
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=min(len(labels), 2 * columns), frameon=False)
    lines = -(-len(labels) // (2 * columns))
    figure.tight_layout(rect=(0, 0.01 + 0.07 * lines, 1, 1))
    figure.savefig(path, dpi=160)
    plt.close(figure)


def _panel(axis: plt.Axes, part: pd.DataFrame) -> None:
    full = part[part["method"] == "full"]["score"]
    if len(full):
        axis.axhline(full.iloc[0], color="0.35", linestyle="--", linewidth=1, label="full cache")
    methods = part[part["method"] != "full"].groupby("name")
    for marker, (name, line) in zip(cycle(MARKERS), methods):
        line = line.sort_values("retention")
        axis.errorbar(
            100 * line["retention"],
            line["score"],
            yerr=1.96 * line["stderr"],
            marker=marker,
            markersize=5,
            linewidth=1.4,
            capsize=2,
            label=name,
        )
    kept = sorted(100 * part[part["method"] != "full"]["retention"].unique())
    axis.set_xscale("log")
    axis.set_xticks(kept, [f"{value:g}" for value in kept])
    axis.minorticks_off()
    axis.set_ylim(0, max(105, 1.05 * part["score"].max()))
    axis.grid(alpha=0.3)


def main(arguments: list[str] | None = None) -> int:
    """Command line: print the table of a results folder; write table.md and score_vs_retention.png into it."""
    parser = argparse.ArgumentParser(prog="python -m analysis.table", description=__doc__)
    parser.add_argument("folder", type=Path, help="results folder, e.g. results/runs/quickstart")
    parser.add_argument("--allow-failures", action="store_true", help="make the table although samples failed")
    options = parser.parse_args(arguments)
    try:
        runs = load_runs(options.folder)
        failed = int(runs["failed"].sum())
        if failed and not options.allow_failures:
            raise ResultsError(f"{options.folder}: {failed} samples failed; run again, or pass --allow-failures")
    except ResultsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    table = score_table(runs)
    note = (
        "\nScores as lmms-eval gives them, shares in %, with the share of the full cache in brackets; "
        f"{runs['samples'].min()} samples per task, {runs['answer_tokens'].mean():.1f} tokens per answer; "
        "kept and KV are means over samples."
    )
    (options.folder / "table.md").write_text(as_text(table, markdown=True) + "\n" + note + "\n")
    plot(runs, options.folder / "score_vs_retention.png")
    print(as_text(table) + "\n" + note)
    print(f"\nTable {options.folder / 'table.md'}\nPlot  {options.folder / 'score_vs_retention.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

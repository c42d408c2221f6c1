"""Score against the share of KV entries kept, against KV memory, or against time per answer (Fig. 4).

One panel per task, methods as lines with 95 % intervals, the full cache as a dashed line, the paper's numbers as hollow
marks. A paper's share of the full cache is drawn as that share of the full cache measured here.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd

from . import style
from .efficiency import seconds_per_answer
from .errors import ResultsError, told
from .names import metric_name, task_name
from .options import add_folders, loaded
from .paper import paper_numbers
from .units import unit

AXES = {
    "retention": ("KV entries kept [%]", "achieved", 100),
    "memory": ("KV kept per sample [MiB]", "kv_bytes", 1 / 2**20),
    "latency": ("seconds per answer", "seconds", 1),
}


def points(scores: pd.DataFrame, against: str) -> pd.DataFrame:
    """Scores with ``x``, and ``y`` and ``error`` (half of the 95 % interval) in the task's units.

    Raises:
        ResultsError: nothing to set the scores against.
    """
    if against == "latency":
        scores = scores.assign(seconds=seconds_per_answer(scores))
    _, column, scale = AXES[against]
    table = scores.assign(
        x=scale * scores[column], y=scores["scale"] * scores["score"], error=1.96 * scores["scale"] * scores["stderr"]
    )
    table = table[table["x"].notna()]
    if table[table["method"] != "full"].empty:
        raise ResultsError(
            "no answer was timed on its own, so there is no time to set scores against: times of a sweep are shared; "
            "run configurations one by one, each in a folder of its own and without KV_SWEEP"
            if against == "latency"
            else f"no configuration has a measured {against}"
        )
    return table


def plot(table: pd.DataFrame, against: str = "retention", width_mm: float = style.README_MM) -> Any:
    """The figure of one model's `points`."""
    tasks = list(dict.fromkeys(table["task"]))
    columns = max(1, min(len(tasks), round(width_mm / (42 if width_mm < 120 else 66))))
    rows, names = -(-len(tasks) // columns), _names(table)
    legend_lines = -(-(len(names) + 2) // style.legend_columns(width_mm, [*names, "full cache"]))
    height = rows * (40 if width_mm < 120 else 58) + legend_lines * (3.6 if width_mm < 120 else 5) + 4
    figure, axes = style.figure(width_mm, height, rows, columns)
    for axis, task in zip(axes.flat, tasks):
        _panel(axis, table[table["task"] == task], names, against)
    for axis in list(axes.flat)[len(tasks) :]:
        axis.remove()
    found = {label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels())}
    style.legend(figure, width_mm, {name: found[name] for name in [*names, "full cache", "paper"] if name in found})
    return figure


def _names(table: pd.DataFrame) -> list[str]:
    """Methods in a fixed order, TGV-KV first, so that a method looks the same in every panel."""
    found = sorted(set(table["name"][table["method"] != "full"]))
    return sorted(found, key=lambda name: not name.startswith("tgv_kv"))


def _panel(axis: Any, part: pd.DataFrame, names: list[str], against: str) -> None:
    full = part[part["method"] == "full"]
    if len(full):
        axis.axhline(
            full["y"].iloc[0], color="0.35", linestyle=(0, (4, 2)), linewidth=0.9, label="full cache", zorder=1
        )
    for position, name in enumerate(names):
        line = part[part["name"] == name].sort_values("x")
        if len(line):
            looks = style.method_style(position)
            axis.plot(line["x"], line["y"], label=name, **looks)
            axis.errorbar(
                line["x"], line["y"], yerr=line["error"], fmt="none", capsize=1.5, elinewidth=0.7, ecolor=looks["color"]
            )
    others = part[part["method"] != "full"]
    if against == "retention":
        _paper(axis, part, names)
        _retention_ticks(axis, sorted(set((100 * others["retention"]).round(3))))
    elif against == "memory":
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter("{x:g}")
    top = max(part["y"].max(), 0 if not len(full) else full["y"].iloc[0])
    axis.set_ylim(0, 1.12 * top if top > 0 else 1)
    metric, scale = part["metric"].iloc[0], part["scale"].iloc[0]
    axis.set(title=task_name(part["task"].iloc[0]), xlabel=AXES[against][0])
    axis.set_ylabel(f"{metric_name(metric)} [{unit(metric, scale)}]")
    axis.grid(alpha=0.25, linewidth=0.5)


def _retention_ticks(axis: Any, kept: list[float]) -> None:
    axis.set_xscale("log")
    shown = [value for i, value in enumerate(kept) if i == 0 or value / kept[i - 1] >= 1.5]
    axis.set_xticks(shown, [f"{value:g}" for value in shown])
    axis.minorticks_off()


def _paper(axis: Any, part: pd.DataFrame, names: list[str]) -> None:
    """Hollow marks where the paper has a number for a method of this model and task."""
    table = paper_numbers()
    model, task = part["model"].iloc[0], part["task"].iloc[0]
    known = table[(table["model"] == model) & (table["task"] == task) & (table["relation"] == "=")]
    full = part[part["method"] == "full"]["y"]
    for _, row in known[known["method"] != "full"].iterrows():
        if row["method"] not in names or pd.isna(row["retention"]):
            continue
        if row["metric"] == "share of full":
            value = row["value"] / 100 * full.iloc[0] if len(full) else None
        else:
            value = row["value"] if row["status"] == "reported" else None
        if value is not None:
            looks = style.method_style(names.index(row["method"])) | {"linestyle": "none", "markerfacecolor": "none"}
            size = 2.2 * style.plt.rcParams["lines.markersize"]
            axis.plot(100 * row["retention"], value, markersize=size, label="paper", zorder=5, **looks)


def draw(
    scores: pd.DataFrame,
    stem: Path,
    against: str = "retention",
    width_mm: float = style.README_MM,
    formats: Iterable[str] = style.FORMATS,
) -> list[Path]:
    """A figure per model; the name of the model is added to ``stem`` if there are several.

    Several are drawn two at a time.
    """
    table, jobs = points(scores, against), []
    for model, mine in table.groupby("model"):
        path = stem if table["model"].nunique() == 1 else stem.with_name(f"{stem.name}-{model}")
        jobs.append((mine, against, width_mm, path, list(formats)))
    if len(jobs) == 1:
        return _drawn(*jobs[0])
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), multiprocessing.get_context("spawn")) as pool:
        return [path for paths in pool.map(_drawn, *zip(*jobs)) for path in paths]


def _drawn(table: pd.DataFrame, against: str, width_mm: float, stem: Path, formats: list[str]) -> list[Path]:
    return style.save(plot(table, against, width_mm), stem, formats)


def chosen(scores: pd.DataFrame, methods: str, tasks: str) -> pd.DataFrame:
    """Only these methods (and the full cache) and tasks; "" is all.

    Raises:
        ResultsError: a name that the results do not have.
    """
    for option, text, column in (("--methods", methods, "method"), ("--tasks", tasks, "task")):
        wanted = text.replace(",", " ").split()
        for name in wanted:
            if name not in set(scores[column]) | set(scores["name"]):
                raise ResultsError(f"{option} {name}: the results have {', '.join(sorted(set(scores[column])))}")
        if wanted:
            also = scores["method"] == "full" if column == "method" else False
            scores = scores[scores[column].isin(wanted) | scores["name"].isin(wanted) | also]
    return scores


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m analysis.pareto", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_folders(parser)
    parser.add_argument("--against", choices=sorted(AXES), default="retention", help="default: retention")
    parser.add_argument("--methods", default="", help="only these, separated by commas; the full cache stays")
    parser.add_argument("--tasks", default="", help="only these, separated by commas")
    parser.add_argument("--width", type=style.width, default=style.README_MM, help="in mm; 85 is a column of a paper")
    parser.add_argument("--formats", default=",".join(style.FORMATS), help="default: png,svg,pdf")
    parser.add_argument("--output", type=Path, help="file without its ending (default: pareto-<against> in the folder)")
    options = parser.parse_args(arguments)

    def make() -> int:
        formats = style.wanted_formats(options.formats)
        scores = chosen(loaded(options).scores, options.methods, options.tasks)
        stem = options.output or options.folders[0] / f"pareto-{options.against}"
        print("\n".join(map(str, draw(scores, stem, options.against, options.width, formats))))
        return 0

    return told(make)


if __name__ == "__main__":
    sys.exit(main())

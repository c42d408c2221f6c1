"""How much of the attention paid while answering falls on entries a method keeps, and whether that predicts accuracy.

Coverage needs no answers to be judged and no evicted run: it is measured with the full cache by `python -m
kv_caches.inspect`. With results folders, the rank correlation with the share of the full cache's score is printed, per
budget over methods and over everything.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from . import style
from .errors import ResultsError, told
from .inspection import coverages, files
from .numbers import number
from .runs import load
from .tables import as_text

_FEWEST = 3  # pairs that a rank correlation needs to say anything


def mean_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean coverage over prompts and layers: a line per configuration, a column per budget."""
    means = rows.groupby(["name", "retention"])["coverage"].mean().unstack()
    return means[sorted(means.columns, reverse=True)].sort_values(min(means.columns), ascending=False)


def with_accuracy(rows: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Configurations that have both: name, retention, coverage, share (of the full cache's score, mean over tasks)."""
    coverage = rows.groupby(["name", "retention"], as_index=False)["coverage"].mean()
    share = scores[scores["share"].notna()].groupby(["name", "retention"], as_index=False)["share"].mean()
    found = coverage.merge(share, on=["name", "retention"])
    if found.empty:
        raise ResultsError("no configuration has both coverage and a score; inspect the methods that were run")
    return found


def rank_correlations(pairs: pd.DataFrame) -> pd.DataFrame:
    """Spearman's rho of coverage and share: per budget, and over all pairs."""
    groups = [(f"{100 * budget:.3g} %", part) for budget, part in pairs.groupby("retention")][::-1]
    rows = []
    for budget, part in [*groups, ("all", pairs)]:
        ranks = part[["coverage", "share"]].rank()
        known = len(part) >= _FEWEST and (ranks.nunique() > 1).all()
        rho = f"{ranks['coverage'].corr(ranks['share']):+.2f}" if known else "too few"
        rows.append({"budget": budget, "configurations": len(part), "rho": rho})
    return pd.DataFrame(rows)


def plot(rows: pd.DataFrame, retention: float, width_mm: float, pairs: pd.DataFrame | None = None) -> Any:
    """Coverage per layer at one budget; beside it, if known, score against coverage at all budgets."""
    panels = 1 if pairs is None else 2
    names = list(mean_table(rows).index)
    stacked = width_mm < 120
    shape = (panels, 1) if stacked else (1, panels)
    height = shape[0] * (45 if stacked else 80) + 4 * -(-len(names) // style.legend_columns(width_mm, names)) + 5
    figure, axes = style.figure(width_mm, height, *shape)
    at = rows[(rows["retention"] - retention).abs() < 1e-9].groupby(["name", "layer"])["coverage"].mean()
    for position, name in enumerate(names):
        looks = style.method_style(position)
        if name in at.index.get_level_values(0):
            line = 100 * at[name]
            axes.flat[0].plot(line.index, line.to_numpy(), label=name, **looks)
        if pairs is not None:
            mine = pairs[pairs["name"] == name].sort_values("retention")
            axes.flat[1].plot(100 * mine["coverage"], 100 * mine["share"], **looks)
    axes.flat[0].set(
        xlabel="layer", ylabel="attention covered [%]", title=f"{100 * retention:.3g} % of the entries kept"
    )
    axes.flat[0].set_ylim(0, 105)
    axes.flat[0].xaxis.get_major_locator().set_params(integer=True)
    if pairs is not None:
        axes.flat[1].set(xlabel="attention covered [%]", ylabel="score, % of full cache", title="all budgets")
    for axis in axes.flat:
        axis.grid(alpha=0.25, linewidth=0.5)
    handles = dict(zip(*reversed(axes.flat[0].get_legend_handles_labels())))
    style.legend(figure, width_mm, handles)
    return figure


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m analysis.coverage", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inspected", type=Path, nargs="+", help="folder or .npz files of python -m kv_caches.inspect")
    parser.add_argument(
        "--results", type=Path, nargs="+", help="results folders of the same model, for the correlation"
    )
    parser.add_argument("--retention", type=float, help="budget of the plot (default: that nearest to 0.1)")
    parser.add_argument("--width", type=style.width, default=style.README_MM, help="in mm; 85 is a column of a paper")
    parser.add_argument("--formats", default=",".join(style.FORMATS), help="default: png,svg,pdf")
    parser.add_argument("--output", type=Path, help="file without its ending (default: coverage, beside the files)")
    options = parser.parse_args(arguments)

    def make() -> int:
        formats = style.wanted_formats(options.formats)
        inspected = files(options.inspected)
        rows = coverages(inspected)
        budgets = sorted(rows["retention"].unique())
        retention = options.retention or min(budgets, key=lambda value: abs(value - 0.1))
        if not any(abs(retention - budget) < 1e-9 for budget in budgets):
            raise ResultsError(f"--retention {retention:g}: inspected were {', '.join(f'{b:g}' for b in budgets)}")
        shown = (100 * mean_table(rows)).rename(columns=lambda budget: f"{100 * budget:.3g} %")
        shown = shown.map(lambda share: number(share, ".1f"))
        print(f"Attention covered [%], mean over {rows['prompt'].nunique()} prompts and all layers")
        print(as_text(shown.reset_index(names="method"), numbers_right=True))
        pairs = None
        if options.results:
            pairs = with_accuracy(rows, load(options.results).scores)
            print("\nRank correlation of coverage and share of the full cache's score")
            print(as_text(rank_correlations(pairs), numbers_right=True))
        stem = options.output or inspected[0].path.parent / "coverage"
        print("\n" + "\n".join(map(str, style.save(plot(rows, retention, options.width, pairs), stem, formats))))
        return 0

    return told(make)


if __name__ == "__main__":
    sys.exit(main())

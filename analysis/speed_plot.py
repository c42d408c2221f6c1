"""Step time against context length, a line per retention and a panel per batch, with the roofline dashed."""

from __future__ import annotations

from typing import Any

from matplotlib import ticker

from . import style
from .errors import ResultsError
from .gains import FULL, OFFICIAL, STOCK, method_name, share

_NAMES = {FULL: "full cache", STOCK: "transformers' own cache"}


def plot(content: dict[str, Any], width_mm: float = style.README_MM) -> Any:
    """The figure.

    Raises:
        ResultsError: no configuration of the file was measured.
    """
    rows = [row for row in content["rows"] if row.get("step_s") is not None]
    if not rows:
        raise ResultsError("none of its configurations was measured, so there is nothing to draw")
    batches, labels = sorted({row["batch"] for row in rows}), list(dict.fromkeys(map(_label, sorted(rows, key=_order))))
    across = 1 if width_mm < 120 else min(2, len(batches))
    down = -(-len(batches) // across)
    height = 18 + down * (46 if width_mm < 120 else 80)
    made, axes = style.figure(width_mm, height, down, across, sharex=True, sharey=True)
    handles: dict[str, Any] = {}
    for axis, batch in zip(axes.flat, batches):
        here = [row for row in rows if row["batch"] == batch]
        for position, label in enumerate(labels):
            line = sorted((row for row in here if _label(row) == label), key=lambda row: row["length"])
            if line:
                look = style.method_style(position)
                handles[label] = axis.plot(_lengths(line), [1e3 * row["step_s"] for row in line], **look)[0]
        _rooflines(axis, here, {label: style.method_style(labels.index(label))["color"] for label in labels})
        axis.set_title(f"batch {batch}")
    for axis in axes.flat[len(batches) :]:
        axis.axis("off")
    _axes(axes, batches, sorted({row["length"] for row in rows}))
    if any("roofline_step_s" in row for row in rows):
        handles["roofline, same colour"] = style.plt.Line2D([], [], color="#666666", linestyle="--", linewidth=1)
    made.suptitle(f"Decode step, {rows[0]['shape']} shape, {content['device']}")
    style.legend(made, width_mm, {label: handles[label] for label in [*labels, *handles] if label in handles})
    return made


def _rooflines(axis: Any, rows: list[dict[str, Any]], colours: dict[str, str]) -> None:
    """Dashed, or a dash where there is one length only: one per method and budget, with or without a graph."""
    drawn = set()
    for label in sorted({_label(row) for row in rows}, key=list(colours).index):
        line = sorted((row for row in rows if _label(row) == label), key=lambda row: row["length"])
        which = line[0]["method"], line[0]["retention"]
        if line[0]["method"] == STOCK or which in drawn or "roofline_step_s" not in line[0]:
            continue  # transformers' own cache has the full cache's
        drawn.add(which)
        limits = [1e3 * row["roofline_step_s"] for row in line]
        alone = {"marker": "_", "markersize": 14} if len(line) == 1 else {}
        axis.plot(_lengths(line), limits, color=colours[label], linestyle="--", linewidth=0.9, alpha=0.8, **alone)


def _lengths(rows: list[dict[str, Any]]) -> list[int]:
    return [row["length"] for row in rows]


def _axes(axes: Any, batches: list[int], lengths: list[int]) -> None:
    for index, axis in enumerate(axes.flat[: len(batches)]):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.xaxis.set_major_locator(ticker.FixedLocator(lengths))
        axis.xaxis.set_major_formatter(ticker.FuncFormatter(lambda n, _: f"{n / 1024:g}k" if n >= 1024 else f"{n:g}"))
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_locator(ticker.NullLocator())
        axis.grid(color="#dddddd", linewidth=0.5)
        if index % axes.shape[1] == 0:
            axis.set_ylabel("step [ms]")
        if index + axes.shape[1] >= len(batches):
            axis.set_xlabel("context [tokens]")
            axis.tick_params(labelbottom=True)


def _label(row: dict[str, Any]) -> str:
    name = _NAMES.get(row["method"], method_name(row))
    graph = ", graph" if row.get("graph") and row["method"] in _NAMES else ""
    return name + graph + ("" if row["method"] in _NAMES else f" {share(row)}")


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    place = {FULL: 0, STOCK: 1, OFFICIAL: 3}.get(row["method"], 2)
    return place, row["method"], -row["retention"], bool(row.get("graph"))

"""How all pictures look: readable in grey and at 85 mm, methods told apart by marker and line as well as colour."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from .errors import ResultsError

MM = 1 / 25.4
README_MM, COLUMN_MM = 264, 85
LEAST_MM, MOST_MM = 60, 1000
FORMATS = ("png", "svg", "pdf")
_MARKERS = "osD^vPX*"
_LINES = ("-", "--", "-.", ":")
_COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7f6000", "#56b4e9")  # after Okabe and Ito


def figure(width_mm: float, height_mm: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    """A figure of that size in print, its axes as an array, its letters fit for it."""
    size = 6.5 if width_mm < 120 else 9
    plt.rcParams.update(
        {
            "font.size": size,
            "axes.titlesize": size,
            "axes.linewidth": 0.6,
            "lines.linewidth": 1.2 if width_mm < 120 else 1.5,
            "lines.markersize": 3.2 if width_mm < 120 else 5,
            "svg.fonttype": "path",
            "svg.hashsalt": "analysis",
        }
    )
    return plt.subplots(
        rows,
        columns,
        figsize=(width_mm * MM, height_mm * MM),
        squeeze=False,
        layout="constrained",
        **options,
    )


def method_style(position: int) -> dict[str, Any]:
    """Marker, line and colour of the n-th method: the first 32 differ in grey."""
    return {
        "marker": _MARKERS[position % len(_MARKERS)],
        "linestyle": _LINES[position // len(_MARKERS) % len(_LINES)],
        "color": _COLOURS[position % len(_COLOURS)],
    }


def legend_columns(width_mm: float, labels: Iterable[str]) -> int:
    """How many columns of a legend fit side by side."""
    letter, handle = (1.22, 11) if width_mm < 120 else (1.6, 18)
    labels = list(labels)
    return max(1, min(len(labels), int(width_mm / (max(map(len, labels)) * letter + handle))))


def legend(made: Any, width_mm: float, handles: dict[str, Any]) -> None:
    """One legend for the whole figure, below it, with as many columns as fit."""
    made.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=legend_columns(width_mm, handles),
        frameon=False,
        handlelength=3,
        columnspacing=1,
    )


def save(made: Any, stem: Path, formats: Iterable[str] = FORMATS) -> list[Path]:
    """Write a figure in every format and close it."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{ending}") for ending in formats]
    for path in paths:
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix, {})
        made.savefig(path, dpi=160 if made.get_figwidth() > 120 * MM else 300, metadata=metadata)
        made.set_layout_engine(None)  # places were found by the first drawing; looking again doubles the time
    plt.close(made)
    return paths


def width(text: str) -> float:
    """A width for `argparse`, in mm.

    Raises:
        ArgumentTypeError: nothing can be read at that width.
    """
    with suppress(ValueError):
        if LEAST_MM <= float(text) <= MOST_MM:
            return float(text)
    raise ArgumentTypeError(f"{text!r}: a number of mm from {LEAST_MM} to {MOST_MM} is needed")


def wanted_formats(text: str) -> list[str]:
    """`png,svg` as a list.

    Raises:
        ResultsError: none, or one that is not made here.
    """
    found = text.replace(",", " ").split()
    if not found:
        raise ResultsError(f"--formats {text!r} names none; allowed are {', '.join(FORMATS)}")
    for name in found:
        if name not in FORMATS:
            raise ResultsError(f"--formats {name}: allowed are {', '.join(FORMATS)}")
    return found

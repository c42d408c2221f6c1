"""What was kept of one sample (Fig. 5): patches per layer, text tokens, and every layer's budget.

One row of pictures per configuration: a patch is clear where all KV heads keep it and behind a grey veil where they
evict it. Bars are entries kept per layer, vision and text apart. In the text, the darker a token the more layers keep
it; tokens that no layer keeps are struck out. From records written with KV_RECORD_KEPT=1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from . import style
from .errors import ResultsError, told
from .kept import Sample, samples
from .names import task_name
from .options import add_folders, loaded

_CELL = 240  # pixels of a picture's longer side in a mosaic
_MOST_LETTERS = 700
_LETTER = 0.602  # width of a letter of the monospace font, in its size
_LEFT, _VEIL = 0.3, 150  # how much of an evicted patch is seen through the veil, and the veil's grey


def plot(shown: Sequence[Sample], width_mm: float = style.README_MM, layers: Sequence[int] = ()) -> Any:
    """The figure of one prompt under several configurations.

    Raises:
        ResultsError: samples of several prompts, or a layer the model does not have.
    """
    first = shown[0]
    if len({sample.record["prompt"] for sample in shown}) > 1:
        raise ResultsError("these are samples of several prompts; one figure shows one")
    count = first.kept.shape[0]
    layers = list(layers) or _spread(count, 3 if width_mm < 120 else 6)
    for layer in layers:
        if layer not in range(count):
            raise ResultsError(f"--layers {layer}: the model has layers 0 to {count - 1}")
    size = 5.5 if width_mm < 120 else 8
    texts = [_wrapped(sample, width_mm - 12, size) for sample in shown]
    text_mm = sum(len(lines) + 1.5 for lines in texts) * size * 0.45
    aspect = _mosaic(first, layers[0]).shape
    row_mm = (width_mm - 12) / (len(layers) + 1.4) * aspect[0] / aspect[1] + 6
    height = len(shown) * row_mm + text_mm + 6
    figure, axes = style.figure(
        width_mm,
        height,
        len(shown) + 1,
        len(layers) + 1,
        gridspec_kw={
            "width_ratios": [1] * len(layers) + [1.3],
            "height_ratios": [row_mm] * len(shown) + [max(text_mm, 1)],
        },
    )
    for row, sample in enumerate(shown):
        for axis, layer in zip(axes[row], layers):
            axis.imshow(_mosaic(sample, layer), interpolation="nearest")
            axis.set(xticks=[], yticks=[], title=f"layer {layer}" if row == 0 else "")
        axes[row][0].set_ylabel(sample.label)
        _bars(axes[row][-1], sample, with_legend=row == 0, last=row == len(shown) - 1, narrow=width_mm < 120)
    _text(figure, axes[-1], shown, size)
    return figure


def _spread(count: int, wanted: int) -> list[int]:
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, wanted))})


def _mosaic(sample: Sample, layer: int) -> np.ndarray:
    """All pictures of a prompt side by side, as square a field as fits; evicted patches faded."""
    blocks = sample.prompt.blocks
    if not blocks:
        return np.full((_CELL, _CELL, 3), 255, np.uint8)
    pieces = [_faded(sample.prompt.picture(block), sample.grid(block, layer)) for block in blocks]
    columns = int(np.ceil(len(pieces) ** 0.5))
    lines = [pieces[i : i + columns] for i in range(0, len(pieces), columns)]
    high, wide = max(p.shape[0] for p in pieces), max(p.shape[1] for p in pieces)
    field = np.full((len(lines) * (high + 4) - 4, columns * (wide + 4) - 4, 3), 255, np.uint8)
    for i, line in enumerate(lines):
        for j, piece in enumerate(line):
            top, left = i * (high + 4), j * (wide + 4)
            field[top : top + piece.shape[0], left : left + piece.shape[1]] = piece
    return field


def _faded(picture: np.ndarray, kept: np.ndarray) -> np.ndarray:
    scale = _CELL / max(picture.shape[:2])
    size = (max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale)))
    image = np.asarray(Image.fromarray(picture).resize(size), float)
    shares = Image.fromarray((255 * kept).round().astype(np.uint8)).resize(size, Image.Resampling.NEAREST)
    visible = _LEFT + (1 - _LEFT) * np.asarray(shares, float)[..., None] / 255
    return (visible * image + (1 - visible) * _VEIL).round().astype(np.uint8)


def _bars(axis: Any, sample: Sample, with_legend: bool, last: bool, narrow: bool) -> None:
    text, vision = np.asarray(sample.record["kept_text"]), np.asarray(sample.record["kept_vision"])
    layers = np.arange(len(text))
    axis.bar(layers, vision, color="0.7", width=0.8, label="vision")
    axis.bar(layers, text, bottom=vision, color="0.2", width=0.8, label="text")
    axis.set_xticks(_spread(len(text), 6))
    axis.set_title("entries kept" if with_legend else "")
    axis.set_xlabel("layer" if last else "")
    axis.set_ylim(0, (2.3 if narrow else 1.35) * max(1, (text + vision).max()))
    axis.yaxis.tick_right()
    if with_legend:
        axis.legend(frameon=False, loc="upper center", ncols=1 if narrow else 2, handlelength=1, borderpad=0.1)


def _wrapped(sample: Sample, width_mm: float, size: float) -> list[list[tuple[str, float]]]:
    """Lines of (token, share of layers that keep it), none wider than that; vision as a count."""
    most = int(width_mm / (size * _LETTER * 0.3528))
    pieces: list[tuple[str, float]] = []
    shares, vision = sample.on_text(), 0
    for token, share in [*zip(sample.prompt.tokens, shares), ("", 0.0)]:
        if token is None:
            vision += 1
            continue
        if vision:
            pieces.append((f" [{vision} vision] ", -1.0))
            vision = 0
        pieces.append((_printable(token), float(share)))
    lines, line, used = [], [], 0
    for token, share in _shortened(pieces):
        if used + len(token) > most and line:
            lines.append(line)
            line, used = [], 0
        line.append((token[:most], share))
        used += len(token)
    return [*lines, line] if line else lines


def _shortened(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Beginning and end of a very long text."""
    total = sum(len(token) for token, _ in pieces)
    if total <= _MOST_LETTERS:
        return pieces
    head, tail, used = [], [], 0
    for piece in pieces:
        used += len(piece[0])
        if used <= _MOST_LETTERS / 3:
            head.append(piece)
        elif used > total - _MOST_LETTERS * 2 / 3:
            tail.append(piece)
    return [*head, (" [...] ", -1.0), *tail]


def _printable(token: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in token.replace("\n", "↵"))


def _text(figure: Any, axes: Any, shown: Sequence[Sample], size: float) -> None:
    """One axis over the whole width; letters are of one width, so their places are known once the axis has its own."""
    grid = axes[0].get_gridspec()
    for axis in axes:
        axis.remove()
    axis = figure.add_subplot(grid[-1, :])
    axis.set_axis_off()
    figure.draw_without_rendering()
    points = axis.get_window_extent().width / figure.dpi * 72
    texts = [_wrapped(sample, points * 0.3528, size) for sample in shown]
    axis.set(xlim=(0, points / (size * _LETTER)), ylim=(sum(len(lines) + 1.5 for lines in texts), 0))
    y = 0.8
    for sample, lines in zip(shown, texts):
        answer = _printable(sample.answer)
        answer = answer if len(answer) <= 60 else answer[:57] + "..."
        axis.text(0, y, f"{sample.label}: answer '{answer}'", fontsize=size, va="center", parse_math=False)
        y += 1.1
        for line in lines:
            _line(axis, line, y, size)
            y += 1
        y += 0.4


def _line(axis: Any, line: list[tuple[str, float]], y: float, size: float) -> None:
    x = 0
    for token, share in line:
        letters = len(token)
        if share >= 0:
            shade = 1 - 0.35 * share
            axis.barh(y, letters, left=x, height=0.95, color=(shade, shade, shade), edgecolor="1", linewidth=0.3)
        ink = "0.45" if share <= 0 else "0"
        axis.text(x, y, token, family="monospace", fontsize=size, va="center", color=ink, parse_math=False)
        if share == 0 and token.strip():
            axis.plot([x, x + letters], [y, y], color="0.45", linewidth=0.5)
        x += letters


def chosen(found: list[Sample], methods: str, retention: float | None, most: int) -> list[Sample]:
    """Configurations of one prompt, at one budget, TGV-KV first.

    Raises:
        ResultsError: none.
    """
    wanted = methods.replace(",", " ").split()
    evicted = [sample for sample in found if sample.name != "full"]
    budgets = sorted({sample.retention for sample in evicted})
    if not budgets:
        raise ResultsError("no record says what was kept: run again with KV_RECORD_KEPT=1")
    budget = retention if retention is not None else min(budgets, key=lambda value: abs(value - 0.1))
    at = [sample for sample in evicted if abs(sample.retention - budget) < 1e-9]
    names = {sample.name for sample in at}
    for name in wanted:
        if name not in names:
            raise ResultsError(f"--methods {name}: kept entries at {budget:g} are known of {', '.join(sorted(names))}")
    if not at:
        raise ResultsError(f"--retention {budget:g}: kept entries are known at {', '.join(f'{b:g}' for b in budgets)}")
    mine = [sample for sample in at if not wanted or sample.name in wanted]
    order = (lambda s: wanted.index(s.name)) if wanted else (lambda s: (not s.name.startswith("tgv_kv"), s.name))
    return sorted(mine, key=order)[:most]


def wanted_layers(text: str) -> list[int]:
    """`0,4` as a list.

    Raises:
        ResultsError: one that is no number.
    """
    found = text.replace(",", " ").split()
    for part in found:
        if not (part.isascii() and part.isdigit()):
            raise ResultsError(f"--layers {part}: whole numbers from 0 are needed, separated by commas")
    return [int(part) for part in found]


def _asked(options: argparse.Namespace) -> str:
    named = [f"{name} {value}" for name in ("task", "sample") if (value := getattr(options, name)) is not None]
    return ", ".join(named) or "any sample"


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m analysis.retention_map",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_folders(parser)
    parser.add_argument("--task", help="default: the first that has such records")
    parser.add_argument("--sample", help="doc_id (default: the first)")
    parser.add_argument("--methods", default="", help="side by side, separated by commas (default: all, at most 4)")
    parser.add_argument("--retention", type=float, help="share kept (default: that nearest to 0.1)")
    parser.add_argument("--layers", default="", help="numbers from 0, separated by commas (default: spread out)")
    parser.add_argument("--width", type=style.width, default=style.README_MM, help="in mm; 85 is a column of a paper")
    parser.add_argument("--formats", default=",".join(style.FORMATS), help="default: png,svg,pdf")
    parser.add_argument("--output", type=Path, help="file without its ending (default: retention-<task>-<sample>)")
    options = parser.parse_args(arguments)

    def make() -> int:
        formats, layers = style.wanted_formats(options.formats), wanted_layers(options.layers)
        found = list(samples(loaded(options), filter(None, [options.task]), filter(None, [options.sample])))
        if not found:
            where = options.folders[0]
            raise ResultsError(
                f"{where}: no record of {_asked(options)} in it or in {where}/records says what was kept: "
                f"run again with KV_RECORD_KEPT=1 KV_RECORDS_DIR={where}/records"
            )
        first = min(found, key=lambda sample: (sample.task, str(sample.doc_id)))
        same = [s for s in found if (s.model, s.task, s.doc_id) == (first.model, first.task, first.doc_id)]
        shown = chosen(same, options.methods, options.retention, 8 if options.methods else 4)
        name = f"retention-{task_name(first.task).replace(' ', '-')}-{first.doc_id}"
        stem = options.output or options.folders[0] / "plots" / name
        print("\n".join(map(str, style.save(plot(shown, options.width, layers), stem, formats))))
        return 0

    return told(make)


if __name__ == "__main__":
    sys.exit(main())

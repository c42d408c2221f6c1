"""How vision and text differ in one prefill (Fig. 1, Fig. 2), from a file of `python -m kv_caches.inspect`.

Similarity of keys; the attention map by block, with the text tokens that dominate; attention an average row pays per
block and layer; accumulated attention over positions; and what a method that ranks by it evicts first.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm

from . import style
from .errors import ResultsError, told
from .inspection import Inspected, files

_DOMINANT, _MOST_EDGES = 4, 8


def plot(one: Inspected, layer: int | None = None, width_mm: float = style.README_MM) -> Any:
    """The figure of one layer, by default the middle one.

    Raises:
        ResultsError: the model has no such layer.
    """
    layer = one.layers // 2 if layer is None else layer
    if layer not in range(one.layers):
        raise ResultsError(f"--layer {layer}: the model has layers 0 to {one.layers - 1}")
    wide = width_mm >= 120
    rows, columns = (2, 3) if wide else (3, 2)
    figure, axes = style.figure(width_mm, rows * (66 if wide else 42), rows, columns)
    flat = list(axes.flat)
    images = [_cosines(flat[0], one, layer), _map(flat[1], one, layer, _DOMINANT if wide else 2)]
    for axis, image in zip(flat, images if wide else []):
        figure.colorbar(image, ax=axis, shrink=0.85)
    blocks = {"text to vision": (1, 0), "text to text": (1, 1), "vision to vision": (0, 0)}
    _lines(flat[2], {name: one.arrays["blocks"][:, row, column] for name, (row, column) in blocks.items()}, wide)
    flat[2].set_title("attention of an average row" if wide else "attention per row")
    pairs = ("vision with vision", "text with text", "vision with text")
    _lines(flat[3], dict(zip(pairs, one.arrays["similarity"].T)), wide)
    flat[3].set_title("mean cosine of keys")
    _received(flat[4], one, layer)
    _order(flat[5], one, layer)
    return figure


def _cosines(axis: Any, one: Inspected, layer: int) -> Any:
    vision = int(one.is_vision[one.arrays["shown"]].sum())
    cosines = one.arrays["cosines"][layer].astype(float)
    low = min(0, float(cosines.min()))
    image = axis.imshow(cosines, cmap="gray_r", vmin=low, vmax=1, interpolation="nearest")
    for line in (axis.axhline, axis.axvline):
        line(vision - 0.5, color="#d55e00", linewidth=0.8)
    middles = [(vision - 1) / 2, (vision + len(cosines) - 1) / 2]
    axis.set_xticks(middles, ["vision", "text"])
    axis.set_yticks(middles, ["vision", "text"], rotation=90, va="center")
    axis.tick_params(length=0)
    axis.set_title(f"cosine of keys, layer {layer}\nwhite {low:.1f}, black 1")
    return image


def _map(axis: Any, one: Inspected, layer: int, named: int) -> Any:
    """Rows attend to columns; the text tokens that dominate are named below."""
    attention, bins = one.arrays["map"][layer].astype(float), one.arrays["bins"]
    scale = LogNorm(attention.max() / 1e3, attention.max())
    image = axis.imshow(np.maximum(attention, 1e-9), cmap="gray_r", norm=scale, interpolation="nearest")
    first_of_bin = np.searchsorted(bins, np.arange(bins[-1] + 1))
    edges = np.flatnonzero(np.diff(one.is_vision[first_of_bin].astype(int)))
    for edge in edges if len(edges) <= _MOST_EDGES else []:
        for line in (axis.axhline, axis.axvline):
            line(edge + 0.5, color="#d55e00", linewidth=0.6)
    strongest = np.argsort(-one.dominance[layer], kind="stable")[:named]
    axis.set(xticks=[], yticks=[], ylabel="from queries")
    axis.set_xlabel("to keys\n" + " ".join(["dominant:", *map(one.token, sorted(strongest))]), parse_math=False)
    axis.set_title(f"attention, layer {layer}\nlog, three decades")
    return image


def _lines(axis: Any, lines: dict[str, np.ndarray], wide: bool) -> None:
    """A line per name over layers, with room for the legend above."""
    for position, (name, values) in enumerate(lines.items()):
        label = name if wide else "".join(word[0] for word in name.split() if word not in ("to", "with")).upper()
        axis.plot(np.arange(len(values)), values, label=label, **style.method_style(position))
    low, high = min(v.min() for v in lines.values()), max(v.max() for v in lines.values())
    axis.set_ylim(min(0, low - 0.05), high + (0.55 if wide else 0.8) * (high - min(0, low)))
    axis.set_xlabel("layer")
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend(frameon=False, handlelength=3, loc="upper center", borderpad=0.1)


def _received(axis: Any, one: Inspected, layer: int) -> None:
    received, positions = one.arrays["received"][layer], np.arange(len(one.is_vision))
    for vision, marker, grey, name in ((True, ".", "0.65", "vision"), (False, "x", "0", "text")):
        chosen = one.is_vision == vision
        axis.plot(positions[chosen], received[chosen], marker, color=grey, markersize=3, label=name)
    low, high = max(received.min(), received.max() / 1e9), received.max()
    axis.set_yscale("log")
    axis.set_ylim(low / 2, high * (high / low) ** 0.3)
    axis.set(xlabel="position", title=f"attention received, layer {layer}")
    axis.legend(frameon=False, loc="upper center", ncols=2, handletextpad=0.2, columnspacing=0.8, borderpad=0.1)


def _order(axis: Any, one: Inspected, layer: int) -> None:
    """Share of vision and of text gone while the lowest sums leave first."""
    order = one.evicted_first(layer)
    evicted = 100 * np.arange(1, len(order) + 1) / len(order)
    for vision, line, grey, name in ((True, "-", "0.65", "vision"), (False, "--", "0", "text")):
        gone = np.cumsum(one.is_vision[order] == vision) / max(1, (one.is_vision == vision).sum())
        axis.plot(evicted, 100 * gone, line, color=grey, label=name)
    axis.set(xlabel="lowest sums evicted [%]", title="of its kind gone [%]", ylim=(-3, 130), yticks=range(0, 101, 25))
    axis.legend(frameon=False, loc="upper center", ncols=2, handlelength=2, columnspacing=0.8, borderpad=0.1)


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m analysis.modality_gap",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, help="a .npz of python -m kv_caches.inspect")
    parser.add_argument("--layer", type=int, help="default: the middle one")
    parser.add_argument("--width", type=style.width, default=style.README_MM, help="in mm; 85 is a column of a paper")
    parser.add_argument("--formats", default=",".join(style.FORMATS), help="default: png,svg,pdf")
    parser.add_argument("--output", type=Path, help="file without its ending (default: modality_gap-<file>)")
    options = parser.parse_args(arguments)

    def make() -> int:
        formats = style.wanted_formats(options.formats)
        one = files([options.file])[0]
        stem = options.output or one.path.with_name(f"modality_gap-{one.path.stem}")
        print("\n".join(map(str, style.save(plot(one, options.layer, options.width), stem, formats))))
        return 0

    return told(make)


if __name__ == "__main__":
    sys.exit(main())

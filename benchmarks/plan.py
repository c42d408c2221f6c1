"""Which configurations a run measures, in which order, and which of them cannot fit."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from benchmarks.cell import OFFICIAL, STOCK, Cell
from benchmarks.shapes import SHAPES, number_bytes
from kv_caches import KVConfig

_PROCESS = 1 << 30
"""Bytes beside weights and caches: libraries and activations."""


def cells(options: argparse.Namespace) -> Iterator[Cell]:
    """Length by length, the shortest first: stock and full at 100 %, the methods at the budgets, the official style."""
    for length in sorted(set(options.lengths)):
        for batch in dict.fromkeys(options.batches):
            base = {"shape": options.shape, "device": options.device, "length": length, "batch": batch}
            base |= {"new": options.new, "repeats": options.repeats}
            base |= {"prefilled": 1 if options.prefill == "one" else batch}
            yield Cell(method=STOCK, retention=1.0, **base)
            for method, retention in _ours(options):
                for graph in _graphs(options):
                    yield Cell(method=method, retention=retention, graph=graph, **base)
            if options.official and batch == 1:
                yield Cell(method=OFFICIAL, retention=min(options.retentions), **base)


def _ours(options: argparse.Namespace) -> Iterator[tuple[str, float]]:
    yield "full", 1.0
    for method in dict.fromkeys(options.methods):
        for retention in dict.fromkeys(options.retentions):
            if method != "full":
                yield method, retention


def _graphs(options: argparse.Namespace) -> tuple[bool, ...]:
    """Without and with a CUDA graph, on a GPU, unless one of them was asked for."""
    if options.graph == "auto":
        return (False, True) if options.device.startswith("cuda") else (False,)
    return (options.graph == "on",)


def needed(cell: Cell) -> int:
    """Bytes of weights and caches at their most, a layer that grows counted twice; a bound from below."""
    shape, size = SHAPES[cell.shape], number_bytes(cell.device)
    prompt = size * shape.kv_entries(cell.length)
    held = cell.batch * cell.retention * prompt * (1 + 1 / shape.layers)
    if cell.method == OFFICIAL:
        held = prompt + size * shape.layers * shape.heads * cell.length**2
    elif cell.method not in (STOCK, "full"):
        early = KVConfig(cell.method, cell.retention).build().evicts_in_layer
        held = max(held, (cell.prefilled or cell.batch) * prompt / (shape.layers if early else 1))
    return int(_PROCESS + size * shape.parameters + held)


def misfit(cell: Cell, free: int) -> str:
    """Why a cell needs not be tried, or nothing."""
    need = needed(cell)
    return f"does not fit: needs {need / 2**30:.1f} GiB of {free / 2**30:.1f}" if need > free else ""

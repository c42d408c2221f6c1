"""Command line of efficiency.py: what is measured, with sizes for this machine where nothing is said."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from benchmarks.shapes import SHAPES

SIZES = {
    "grid": {
        "lengths": [2048, 4096, 8192, 16384, 32768],
        "batches": [1, 8, 16, 32],
        "retentions": [0.5, 0.2, 0.1, 0.05],
        "methods": ["tgv_kv"],
        "official": False,
        "seconds": None,
    },
    "gpu": {
        "lengths": [8192, 32768],
        "batches": [16, 1],
        "retentions": [0.05],
        "methods": ["tgv_kv"],
        "official": True,
        "seconds": 420.0,
    },
    "cpu": {
        "lengths": [2048, 4096],
        "batches": [1],
        "retentions": [0.2, 0.05],
        "methods": ["tgv_kv", "snapkv", "h2o"],
        "official": True,
        "seconds": 450.0,
    },
}


def read(argv: list[str] | None, description: str) -> argparse.Namespace:
    """Options of a command line; exits with 2 where one cannot be."""
    parser = _parser(description)
    options = parser.parse_args(argv)
    gpu = options.device.startswith("cuda")
    for name, value in SIZES["grid" if options.grid else "gpu" if gpu else "cpu"].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.shape = options.shape or ("llava-1.5-7b" if gpu else "cpu-attention" if options.grid else "cpu")
    options.prefill = options.prefill or ("one" if options.grid and not gpu else "all")
    options.resume = options.grid if options.resume is None else options.resume
    if options.graph == "on" and not gpu:
        parser.error(f"argument --graph: on: CUDA graphs need a CUDA device, not --device {options.device}")
    return options


def _parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.efficiency",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--grid", action="store_true", help="the whole of Table 4, which takes hours; see above")
    add("--device", type=_device, default="cuda" if torch.cuda.is_available() else "cpu")
    add("--shape", choices=sorted(SHAPES), help="llava-1.5-7b on a GPU, cpu on a CPU, cpu-attention for its grid")
    add("--lengths", type=_several(_whole), help="tokens per prompt")
    add("--batches", type=_several(_whole))
    add("--retentions", type=_several(_share))
    add("--methods", type=_several(str), help="beside stock and full, which are always measured")
    add("--new", type=_whole, default=64 if torch.cuda.is_available() else 16, help="new tokens that are measured")
    add("--repeats", type=_whole, default=1)
    add("--prefill", choices=["all", "one"], help="prefill a whole batch, or one prompt whose cache is repeated")
    add("--graph", choices=["auto", "on", "off"], default="auto", help="decode as a CUDA graph; auto: with and without")
    official = "the released procedure, at batch 1 and the smallest budget"
    add("--official", action=argparse.BooleanOptionalAction, default=None, help=official)
    add("--seconds", type=_seconds, help="start no configuration after so many seconds")
    resume = "go on from the file of an earlier run; as the grid does"
    add("--resume", action=argparse.BooleanOptionalAction, default=None, help=resume)
    add("--output", type=Path, help="results/efficiency/<device>-<shape>.json, <device>-<shape>-grid.json")
    return parser


def _several(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [kind(part) for part in text.split(",")]


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r}: whole numbers from 1 are needed")
    return int(text)


def _device(text: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r}: cpu, cuda or cuda:<n> is needed")
    if text != "cpu" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError(f"{text!r}: there is no CUDA device on this machine; use cpu")
    return text


def _share(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) <= 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r}: shares kept are numbers above 0 and up to 1")


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if float(text) > 0:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r}: a number of seconds above 0 is needed")

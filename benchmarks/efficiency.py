"""Memory, latency and throughput of decoding from an evicted cache, next to what the machine's memory allows.

    python -m benchmarks.efficiency                  # sizes for this machine, under 8 minutes
    python -m benchmarks.efficiency --shape llava-1.5-7b --lengths 8192 --batches 1,16 --methods tgv_kv,snapkv

Models have real shapes and random weights, so nothing is downloaded. Every configuration runs in a process of its own.
'stock' is transformers' generate loop with its own cache, 'official-style' the released procedure (eager attention,
maps returned). Figures go to results/efficiency/<device>-<shape>.json; `python -m analysis.speed FILE` prints Table 4.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from analysis import speed
from benchmarks.cell import OFFICIAL, STOCK, Cell
from benchmarks.shapes import SHAPES
from kv_caches import ConfigError, KVConfig
from lmms_eval_plugins.records import versions, write_json

ANSWERS = (128, 512, 1500)
_SLOWEST = 600  # seconds that one configuration may take


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    options = _options(argv)
    try:
        for retention in options.retentions:
            [KVConfig(method, retention) for method in options.methods]
    except ConfigError as error:
        print(f"error: --methods or --retentions: {error}", file=sys.stderr)
        return 2
    path = options.output or Path("results/efficiency") / f"{device_name(options.device)}-{options.shape}.json"
    if path.is_dir():
        print(f"error: --output {path} is a folder; a file is needed", file=sys.stderr)
        return 2
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"error: --output {path} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    bandwidth = copy_bandwidth(options.device)
    print(f"{device_name(options.device)}: {bandwidth / 1e9:.1f} GB/s copied; shape {options.shape}", flush=True)
    rows, started = [], time.monotonic()
    for cell in tqdm(list(cells(options)), disable=not sys.stderr.isatty(), unit="configuration"):
        if time.monotonic() - started > options.seconds:
            rows.append(asdict(cell) | {"error": f"not run: --seconds {options.seconds} were over"})
            continue
        rows.append(derived(run_apart(cell), bandwidth))
        print(line(rows[-1]), flush=True)
    about = {"device": device_name(options.device), "threads": torch.get_num_threads(), "copy_bandwidth": bandwidth}
    content = {"schema": speed.SCHEMA, **about, "versions": versions(), "rows": rows}
    write_json(path, content)
    print("\n" + speed.as_text(content))
    print(f"\nFigures: {path}")
    return 0


def cells(options: argparse.Namespace) -> Iterator[Cell]:
    """The grid: stock and full at 100 %, the methods at the budgets, the official procedure where it may fit."""
    for length in options.lengths:
        for batch in options.batches:
            base = {"shape": options.shape, "device": options.device, "length": length, "batch": batch}
            base |= {"new": options.new, "repeats": options.repeats}
            yield Cell(method=STOCK, retention=1.0, **base)
            yield Cell(method="full", retention=1.0, **base)
            for method in options.methods:
                for retention in options.retentions:
                    yield Cell(method=method, retention=retention, **base)
            if options.official and batch == 1:
                yield Cell(method=OFFICIAL, retention=min(options.retentions), **base)


def run_apart(cell: Cell) -> dict[str, Any]:
    """A cell's figures from a process of its own; never raises for what goes wrong in there."""
    command = [sys.executable, "-m", "benchmarks.cell", json.dumps(asdict(cell))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SLOWEST)
    except subprocess.TimeoutExpired:
        return asdict(cell) | {"error": f"stopped after {_SLOWEST} s"}
    if done.returncode:
        reason = "killed: out of memory" if done.returncode < 0 else (done.stderr.strip().splitlines() or ["?"])[-1]
        return asdict(cell) | {"error": reason}
    return json.loads(done.stdout.splitlines()[-1])


def derived(row: dict[str, Any], bandwidth: float) -> dict[str, Any]:
    """Adds the roofline, and throughput for answers of other lengths from the measured prefill and step."""
    if "error" in row:
        return row
    for answer in ANSWERS:
        seconds = row["prefill_s"] + answer * row["step_s"]
        row[f"tokens_per_s_{answer}"] = row["batch"] * answer / seconds
    if "kv_prompt_bytes" in row:
        read = row["weight_bytes"] + row["kv_prompt_bytes"]
        row |= {"roofline_step_s": read / bandwidth, "roofline_share": read / bandwidth / row["step_s"]}
        row["largest_batch"] = largest_batch(row)
    return row


def largest_batch(row: dict[str, Any]) -> int:
    """Prompts whose caches fit beside the weights and one prompt's prefill, computed and not tried."""
    total = memory(row["device"])
    per_prompt = (row["kv_prompt_bytes"] + row["kv_room_bytes"]) / row["batch"]
    return max(0, int((total - row["weight_bytes"] - row["peak_prefill_bytes"] / row["batch"]) / per_prompt))


def memory(device: str) -> int:
    """Bytes of memory that the device has."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_properties(device).total_memory
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(meminfo["MemTotal"].split()[0]) * 1024


def copy_bandwidth(device: str) -> float:
    """Bytes read per second by a large sum, the best of several: what a decode step does with weights and cache."""
    source = torch.ones((1 << 30) // 4 if device.startswith("cuda") else (1 << 28) // 4, device=device)
    best = 0.0
    for _ in range(8):
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        started = time.perf_counter()
        source.sum().item()
        best = max(best, source.nbytes / (time.perf_counter() - started))
    return best


def device_name(device: str) -> str:
    """Name of the card, or the number of CPU threads."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device).replace(" ", "-")
    return f"cpu-{torch.get_num_threads()}-threads"


def line(row: dict[str, Any]) -> str:
    """What is printed as soon as a configuration is measured."""
    head = f"{row['method']} {100 * row['retention']:g} % N={row['length']} batch {row['batch']}: "
    if "error" in row:
        return head + row["error"]
    return head + f"prefill {row['prefill_s']:.2f} s, step {1000 * row['step_s']:.1f} ms"


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


def _options(argv: list[str] | None) -> argparse.Namespace:
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.efficiency",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    numbers = lambda kind: lambda text: [kind(part) for part in text.split(",")]  # noqa: E731
    parser.add_argument("--device", type=_device, default="cuda" if gpu else "cpu")
    parser.add_argument("--shape", default="llava-1.5-7b" if gpu else "cpu", choices=sorted(SHAPES))
    parser.add_argument("--lengths", type=numbers(_whole), default=[8192, 32768] if gpu else [2048, 4096])
    parser.add_argument("--batches", type=numbers(_whole), default=[1, 16] if gpu else [1])
    parser.add_argument("--retentions", type=numbers(_share), default=[0.2, 0.05])
    parser.add_argument("--methods", type=numbers(str), default=["tgv_kv", "snapkv", "h2o"])
    parser.add_argument("--new", type=_whole, default=64 if gpu else 16, help="new tokens that are measured")
    parser.add_argument("--repeats", type=_whole, default=1)
    parser.add_argument("--no-official", dest="official", action="store_false", help="leave the released procedure out")
    parser.add_argument("--seconds", type=_seconds, default=450, help="start no configuration after so many seconds")
    parser.add_argument("--output", type=Path)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

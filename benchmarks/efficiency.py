"""Memory, latency and throughput of decoding from an evicted cache, next to what the machine's memory allows.

    python -m benchmarks.efficiency                  # sizes for this machine, under 8 minutes
    python -m benchmarks.efficiency --shape llava-1.5-7b --lengths 8192 --batches 1,16 --methods tgv_kv,snapkv
    python -m benchmarks.efficiency --grid           # the whole of Table 4; once stopped, the same command goes on

Without sizes: on a GPU the shape of LLaVA-1.5-7B at 8192 (batch 16, then 1) and 32768 tokens (batch 1), tgv_kv at 5 %,
with and without a CUDA graph, 15 configurations in at most 8 minutes; on a CPU 8 layers at 2048 and 4096 tokens, batch
1, tgv_kv, snapkv and h2o at 20 and 5 %, 18 configurations. --grid: 2048 to 32768 tokens, batch 1, 8, 16 and 32, tgv_kv
at 50, 20, 10 and 5 %, 120 configurations on a CPU, where one prompt of a batch is prefilled and its cache repeated, and
220 on a GPU.

Models have real shapes and random weights, so nothing is downloaded. Every configuration runs in a process of its own;
one whose caches cannot fit is not tried. 'stock' is transformers' generate loop with its own cache, 'official-style'
the released procedure (eager attention, maps returned). Figures go to results/efficiency/, after every configuration;
`python -m analysis.speed FILE` prints Table 4.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from analysis import speed
from analysis.errors import ResultsError
from benchmarks import options as command_line
from benchmarks.cell import Cell
from benchmarks.figures import Figures, OtherMachineError
from benchmarks.machine import copy_bandwidth, device_name, free_memory, memory, processor
from benchmarks.plan import cells, misfit
from kv_caches import ConfigError, KVConfig
from lmms_eval_plugins.records import versions

ANSWERS = (128, 512, 1500)
_SLOWEST = 600  # seconds that one configuration may take


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    options = command_line.read(argv, str(__doc__))
    try:
        figures = _figures(options)
        with figures.held():
            return _run(figures, options)
    except (OtherMachineError, ConfigError, ResultsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(figures: Figures, options: Namespace) -> int:
    """Measure what is missing and print all of it; 130 when it was interrupted."""
    _begin(figures, options)
    bandwidth = figures.about["copy_bandwidth"]
    print(f"{figures.about['device']}: {bandwidth / 1e9:.1f} GB/s copied; shape {options.shape}", flush=True)
    status = 0
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        measure(figures, options.seconds)
    except KeyboardInterrupt:
        status = 130
    finally:
        signal.signal(signal.SIGTERM, before)
    content = figures.content()
    print("\n" + (speed.as_text(content) if content["rows"] else speed.unfinished(content)))
    print(f"\nFigures: {figures.path}")
    return status


def _interrupt(*_: Any) -> None:
    """A configuration that outlives its run would disturb the next one."""
    raise KeyboardInterrupt


def _figures(options: Namespace) -> Figures:
    """The run's file, without what is in it.

    Raises:
        ConfigError: a method or a budget that cannot be, or a file that cannot be written.
    """
    try:
        [KVConfig(method, retention) for retention in options.retentions for method in options.methods]
    except ConfigError as error:
        raise ConfigError(f"--methods or --retentions: {error}") from error
    name = device_name(options.device)
    path = options.output or Path(f"results/efficiency/{name}-{options.shape}{'-grid' * options.grid}.json")
    if path.is_dir():
        raise ConfigError(f"--output {path} is a folder; a file is needed")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--output {path} cannot be written: {error.strerror}") from error
    about = {"device": name, "processor": processor(options.device), "threads": torch.get_num_threads()}
    about |= {"shape": options.shape, "versions": versions()}
    return Figures(path, about, list(cells(options)), options.resume)


def _begin(figures: Figures, options: Namespace) -> None:
    """What was measured before if the run goes on, else the bandwidth of this machine.

    Raises:
        ResultsError: a damaged file to go on from.
        OtherMachineError: what is in the file is not to be mixed with this.
    """
    try:
        if options.resume and figures.path.exists():
            figures.read()
    except OtherMachineError as error:
        way = "--no-resume measures all of it anew, another --output keeps it"
        raise OtherMachineError(f"{figures.path} cannot be gone on from: {error}; {way}") from error
    if "copy_bandwidth" not in figures.about:
        figures.about["copy_bandwidth"] = copy_bandwidth(options.device)


def measure(figures: Figures, seconds: float | None) -> None:
    """Everything of the file that is missing, in turn, until that time is over; what cannot fit is not tried."""
    started, todo = time.monotonic(), figures.missing()
    free = free_memory(figures.asked[0].device)
    reasons = {cell: misfit(cell, free) for cell in todo}
    if any(reasons.values()):
        figures.add([asdict(cell) | {"error": reason} for cell, reason in reasons.items() if reason])
    todo, asked = [cell for cell in todo if not reasons[cell]], len(figures.asked)
    bar = tqdm(total=asked, initial=asked - len(todo), disable=not sys.stderr.isatty(), unit="configuration")
    with bar:
        for cell in todo:
            if seconds is not None and time.monotonic() - started > seconds:
                return
            row = derived(run_apart(cell), figures.about["copy_bandwidth"])
            figures.add([row])
            bar.update()
            tqdm.write(line(row))
            sys.stdout.flush()


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
    per_prompt = (row["kv_prompt_bytes"] + row["kv_room_bytes"]) / row["batch"]
    prefill = row["peak_prefill_bytes"] / (row.get("prefilled") or row["batch"])
    return max(0, int((memory(row["device"]) - row["weight_bytes"] - prefill) / per_prompt))


def line(row: dict[str, Any]) -> str:
    """What is printed as soon as a configuration is measured."""
    graph = ", graph" * row["graph"]
    head = f"{row['method']}{graph} {100 * row['retention']:g} % N={row['length']} batch {row['batch']}: "
    if "error" in row:
        return head + row["error"]
    return head + f"prefill {row['prefill_s']:.2f} s, step {1000 * row['step_s']:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())

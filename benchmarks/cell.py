"""One configuration in a process of its own: `python -m benchmarks.cell '{...}'` prints its figures as JSON.

efficiency.py starts these; a configuration that does not fit, or fails, prints its reason instead.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks import official, phases, shapes
from kv_caches import KVConfig

STOCK, OFFICIAL = "stock", "official-style"


@dataclass(frozen=True)
class Cell:
    """What is measured. ``method`` is a name of `python -m kv_caches list`, 'stock' (transformers alone, its own cache)
    or 'official-style' (see official.py)."""

    shape: str
    device: str
    method: str
    retention: float
    length: int
    batch: int
    new: int
    repeats: int = 1


def measure(cell: Cell) -> dict[str, Any]:
    """Figures of a cell: seconds and bytes."""
    model = shapes.build(cell.shape, cell.device, "eager" if cell.method == OFFICIAL else "sdpa")
    ids = shapes.prompt(cell.length, cell.batch, cell.device)
    warm_up = shapes.prompt(256, cell.batch, cell.device)
    if cell.method == OFFICIAL:
        official.run(model, warm_up, cell.retention, 2)
        runs = [official.run(model, ids, cell.retention, cell.new) for _ in range(cell.repeats)]
        steps = [second for _, seconds in runs for second in seconds]
        return {"prefill_s": statistics.median(p for p, _ in runs), "step_s": statistics.median(steps)}
    config = None if cell.method == STOCK else KVConfig(cell.method, cell.retention)
    phases.run(model, warm_up, config, 2)
    runs = [phases.run(model, ids, config, cell.new) for _ in range(cell.repeats)]
    parts = phases.run(model, ids, config, min(cell.new, 8), parts=True)
    weighed = phases.run(model, ids, config, min(cell.new, 8), weigh=True)
    return _figures(model, cell, runs, parts, weighed)


def _figures(model: Any, cell: Cell, runs: list[phases.Measured], parts: Any, weighed: Any) -> dict[str, Any]:
    prefill = statistics.median(run.prefill for run in runs)
    every = phases.Measured(prefill, [second for run in runs for second in run.steps])
    decoded = statistics.median(sum(run.steps) for run in runs)
    scoring = sum(parts.spent.get(f"prefill {name}", 0.0) for name in ("scoring", "eviction"))
    inner = sum(parts.spent.get(f"decode {name}", 0.0) for name in ("attention", "cache"))
    return {
        "prefill_s": prefill,
        "scoring_s": scoring,
        "step_s": every.step,
        "step_p95_s": every.p95(),
        "attention_and_cache_s": inner / min(cell.new, 8),
        "tokens_per_s": cell.batch * cell.new / (prefill + decoded),
        "kv_prompt_bytes": runs[0].kv_prompt,
        "kv_room_bytes": runs[0].kv_room,
        "weight_bytes": shapes.weight_bytes(model),
        "peak_prefill_bytes": weighed.peak_prefill,
        "peak_decode_bytes": weighed.peak_decode,
        "rss_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main(argument: str) -> int:
    """Command line."""
    cell = Cell(**json.loads(argument))
    try:
        figures = measure(cell)
    except (torch.OutOfMemoryError, MemoryError) as error:
        figures = {"error": f"out of memory: {str(error).splitlines()[0]}"}
    print(json.dumps(asdict(cell) | figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

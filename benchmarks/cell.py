"""One configuration in a process of its own: `python -m benchmarks.cell '{...}'` prints its figures as JSON.

efficiency.py starts these; a configuration that does not fit, or fails, prints its reason instead.
"""

from __future__ import annotations

import ctypes
import json
import signal
import statistics
import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks import official, phases, shapes
from benchmarks.machine import peak_memory
from kv_caches import KVConfig

STOCK, OFFICIAL = "stock", "official-style"
_ENDS_WITH_PARENT = 1  # PR_SET_PDEATHSIG: a run that was killed cannot end its configuration itself


@dataclass(frozen=True)
class Cell:
    """What is measured.

    Attributes:
        method: a name of `python -m kv_caches list`, 'stock' (transformers alone, its own cache) or 'official-style'
            (see official.py).
        prefilled: prompts of the batch that are prefilled, the others are copies of their caches; None: all.
        graph: decode steps are captured as a CUDA graph.
    """

    shape: str
    device: str
    method: str
    retention: float
    length: int
    batch: int
    new: int
    repeats: int = 1
    prefilled: int | None = None
    graph: bool = False

    @property
    def copies(self) -> int:
        """Of every prefilled prompt."""
        return self.batch // (self.prefilled or self.batch)


def measure(cell: Cell) -> dict[str, Any]:
    """Figures of a cell: seconds and bytes."""
    model = shapes.build(cell.shape, cell.device, "eager" if cell.method == OFFICIAL else "sdpa")
    ids, warm_up = (shapes.prompt(n, cell.prefilled or cell.batch, cell.device) for n in (cell.length, 256))
    if cell.method == OFFICIAL:
        official.run(model, warm_up, cell.retention, 2)
        runs = [official.run(model, ids, cell.retention, cell.new) for _ in range(cell.repeats)]
        steps = [second for _, seconds in runs for second in seconds]
        return {"prefill_s": statistics.median(p for p, _ in runs), "step_s": statistics.median(steps)}
    config = None if cell.method == STOCK else KVConfig(cell.method, cell.retention)
    how: dict[str, Any] = {"copies": cell.copies} | ({"graph": True} if cell.graph else {})
    phases.run(model, warm_up, config, 2, **how)
    few = min(cell.new, 8)
    # A GPU's allocator counts anyway, and a CPU is never waited for: that much is measured with the times.
    if cell.device.startswith("cuda"):
        runs = [phases.run(model, ids, config, cell.new, weigh=True, **how) for _ in range(cell.repeats)]
        parts, weighed = phases.run(model, ids, config, few, parts=True, copies=cell.copies), runs[0]
    else:
        runs = [phases.run(model, ids, config, cell.new, parts=True, **how) for _ in range(cell.repeats)]
        parts, weighed = runs[0], phases.run(model, ids, config, few, weigh=True, **how)
    return _figures(model, cell, runs, parts, weighed)


def _figures(model: Any, cell: Cell, runs: list[phases.Measured], parts: Any, weighed: Any) -> dict[str, Any]:
    prefill = cell.copies * statistics.median(run.prefill for run in runs)
    every = phases.Measured(prefill, [second for run in runs for second in run.steps])
    decoded = statistics.median(sum(run.steps) for run in runs)
    scoring = sum(parts.spent.get(f"prefill {name}", 0.0) for name in ("scoring", "eviction"))
    inner = sum(parts.spent.get(f"decode {name}", 0.0) for name in ("attention", "cache"))
    return {
        "prefill_s": prefill,
        "scoring_s": cell.copies * scoring,
        "step_s": every.step,
        "step_p95_s": every.p95(),
        "attention_and_cache_s": None if cell.graph else inner / len(parts.steps),
        "tokens_per_s": cell.batch * cell.new / (prefill + decoded),
        "kv_prompt_bytes": runs[0].kv_prompt,
        "kv_room_bytes": runs[0].kv_room,
        "weight_bytes": shapes.weight_bytes(model),
        "peak_prefill_bytes": weighed.peak_prefill,
        "peak_decode_bytes": weighed.peak_decode,
        "rss_peak_bytes": peak_memory(),
    }


def main(argument: str) -> int:
    """Command line."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_ENDS_WITH_PARENT, signal.SIGKILL)
    cell = Cell(**json.loads(argument))
    try:
        figures = measure(cell)
    except (torch.OutOfMemoryError, MemoryError) as error:
        figures = {"error": f"out of memory: {str(error).splitlines()[0]}"}
    print(json.dumps(asdict(cell) | figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

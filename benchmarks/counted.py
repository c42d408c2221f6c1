"""Promises about work and memory, counted: they hold or fail the same way on every machine, quiet or busy."""

from __future__ import annotations

import ctypes
import gc
import math
from collections.abc import Callable
from typing import Any

import psutil
import torch
from transformers.cache_utils import DynamicCache

from benchmarks import phases, shapes
from benchmarks.bounds import Finding, Promise
from benchmarks.layers import eager_attention, layer, sdpa, sdpa_with_scoring
from benchmarks.work import Work
from kv_caches import KVConfig, attach, kernels, registry
from kv_caches.statistics import ColumnSums, TextGrounding

TGV = KVConfig("tgv_kv", 0.05)
FULL = KVConfig()


def work() -> list[Finding]:
    """What TGV-KV adds to a prefill, how its scoring grows, and what other ways of attention do beside it."""
    model, ids = shapes.build("cpu-short", "cpu"), shapes.prompt(4096, 1, "cpu")
    plain, ours = (_count(lambda c=config: phases.run(model, ids, c, 0)) for config in (None, TGV))
    few, many = (_count(lambda n=n: TextGrounding().collect(layer(n))) for n in (1024, 16384))
    one = layer(4096)
    eager, together = _count(lambda: eager_attention(one)), _count(lambda: sdpa_with_scoring(one))
    columns, attention = _count(lambda: ColumnSums().collect(one)), _count(lambda: sdpa(one))
    return [
        _counted("operations that TGV-KV adds / prefill's, N = 4096", ours.flops / plain.flops - 1, 0.01),
        _counted("bytes that TGV-KV adds / prefill's, N = 4096", ours.bytes / plain.bytes - 1, 0.1),
        _counted("growth of scoring's operations, exponent 1k-16k", _exponent(few.flops, many.flops, 16), 1.05),
        _counted("growth of scoring's bytes, exponent 1k-16k", _exponent(few.bytes, many.bytes, 16), 1.05),
        _counted("bytes of eager attention / SDPA with scoring, N = 4096", eager.bytes / together.bytes, 20, False),
        _counted("operations of column sums / SDPA's, N = 4096", columns.flops / attention.flops, 0.6),
    ]


def peak() -> list[Finding]:
    """Prefill's peak memory beside the plain forward's, and how it grows."""
    model, peaks = shapes.build("cpu-attention", "cpu"), {}
    for n in (8192, 16384):
        ids = shapes.prompt(n, 1, "cpu")
        for config in (None, TGV):
            peaks[n, config] = phases.run(model, ids, config, 0, weigh=True).peak_prefill
    exponent = _exponent(peaks[8192, TGV], peaks[16384, TGV], 2)
    return [
        _counted("prefill peak / plain forward's, N = 16k", peaks[16384, TGV] / peaks[16384, None], 1.05),
        _counted("growth of the peak with N, exponent 8k-16k", exponent, 1.05),
    ]


def kept() -> list[Finding]:
    """Bytes of the prompt's entries that stay allocated at 5 %, for every method that promises 5 %, and of a step."""
    model, ids = shapes.build("smoke", "cpu"), shapes.prompt(4096, 1, "cpu")
    whole, shares = phases.run(model, ids, FULL, 0).kv_prompt, {}
    for name in registry.method_names():
        if name != "full" and registry.build(name, registry.variants(name)[0]).exact_budget:
            shares[name] = phases.run(model, ids, KVConfig(name, 0.05), 0).kv_prompt / whole
    worst = max(shares, key=lambda name: shares[name])
    model, ids = shapes.build("cpu-attention", "cpu"), shapes.prompt(8192, 1, "cpu")
    stock, full = (_step_bytes(model, ids, config) for config in (None, FULL))
    return [
        _counted(f"allocated at 5 %, worst of {len(shares)} methods ({worst})", shares[worst], 0.052),
        _counted("bytes of a decode step, full cache / transformers' own, N = 8k", full / stock, 0.6),
        _grown(model, ids),
    ]


def _counted(what: str, value: float, bound: float, at_most: bool = True) -> Finding:
    return Finding(Promise(what, bound, at_most), (value,), counted=True)


@torch.inference_mode()
def _count(function: Callable[[], Any]) -> Work:
    with Work() as counted:
        function()
    return counted


def _exponent(small: float, large: float, times: int) -> float:
    return math.log(large / small) / math.log(times)


@torch.inference_mode()
def _step_bytes(model: Any, ids: torch.Tensor, config: KVConfig | None) -> int:
    """Bytes of the second token's step: the first makes room for many."""
    with phases.decoding(model, ids, config) as step:
        step()
        return _count(step).bytes


def _grown(model: Any, ids: torch.Tensor) -> Finding:
    """Bytes that the process holds more after a prefill at 5 %, its cache still there, beside a full cache's."""
    promise = Promise("growth of the process at 5 % / full, N = 8k", 0.1)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if psutil.LINUX else None
    if trim is None:
        return Finding(promise, (), True, "here nothing tells the C library to give free memory back to the system")
    full, evicted = (_resident(model, ids, config, trim) for config in (FULL, TGV))
    size = phases.run(model, ids, FULL, 0).kv_prompt
    if not 0.9 * size < full < 1.5 * size:
        trouble = f"the process grew by {full / 2**20:.0f} MiB with a full cache of {size / 2**20:.0f}: was it swapped?"
        return Finding(promise, (), True, trouble)
    return Finding(promise, (evicted / full,), True)


@torch.inference_mode()
def _resident(model: Any, ids: torch.Tensor, config: KVConfig, trim: Callable[[int], int]) -> int:
    def rss() -> int:
        gc.collect()
        trim(0)
        return psutil.Process().memory_info().rss

    phases.run(model, ids, config, 0)
    before, cache = rss(), DynamicCache()
    with attach(model, config):
        model(input_ids=ids, use_cache=True, logits_to_keep=1, **{kernels.cache_argument(model): cache})
    return rss() - before

"""Promises about time. Both sides of a ratio are bound by the same thing, so that it hangs on no cache and no memory.

What does hang on them, how many times faster something is, is shown as this machine's figure, or promised as "never
slower" only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers.cache_utils import DynamicCache

from benchmarks import official, phases, shapes
from benchmarks.bounds import Promise
from benchmarks.counted import FULL, TGV
from benchmarks.layers import eager_attention, layer, sdpa, sdpa_with_scoring
from benchmarks.paired import Timed
from kv_caches import KVConfig, attach
from kv_caches.statistics import ColumnSums, TextGrounding

ANSWER, BATCH, NEW = 512, 4, 6


def scoring() -> Timed:
    """TGV-KV's scoring and eviction beside the rest of the prefill they ride on; d = 1024."""
    model, ids = shapes.build("cpu-short", "cpu"), shapes.prompt(4096, 1, "cpu")

    def ratios(run: phases.Measured) -> list[float]:
        added = run.spent["prefill scoring"] + run.spent["prefill eviction"]
        return [added / (run.prefill - added)]

    promise = Promise("scoring and eviction / the rest of the prefill, N = 4096", 0.05)
    return Timed([promise], {"run": lambda: phases.run(model, ids, TGV, 0, parts=True)}, ratios)


def released() -> Timed:
    """The released procedure's prefill beside ours; d = 1024."""
    ids = shapes.prompt(4096, 1, "cpu")
    ours, eager = (shapes.build("cpu-short", "cpu", kernel) for kernel in ("sdpa", "eager"))
    return Timed(
        [Promise("released procedure's prefill / ours, N = 4096", 1.25, at_most=False)],
        {
            "ours": lambda: phases.run(ours, ids, TGV, 0).prefill,
            "eager": lambda: official.run(eager, ids, TGV.retention, 0)[0],
        },
        lambda ours, eager: [eager / ours],
    )


def attention() -> Timed:
    """One layer's attention: eager with head means, SDPA with TGV-KV's scoring, column sums, SDPA alone."""
    one = layer(4096)
    return Timed(
        [
            Promise("eager attention / SDPA with scoring, N = 4096", 2, at_most=False),
            Promise("column sums / eager attention, N = 4096", 1),
            Promise("column sums / SDPA, N = 4096"),
        ],
        {
            "eager": partial(_best, lambda: eager_attention(one), 1),
            "ours": partial(_best, lambda: sdpa_with_scoring(one)),
            "columns": partial(_best, lambda: ColumnSums().collect(one)),
            "plain": partial(_best, lambda: sdpa(one)),
        },
        lambda eager, ours, columns, plain: [eager / ours, columns / eager, columns / plain],
    )


def growth() -> Timed:
    """Scoring of a long prompt beside four times the heads of a quarter of it: the same work if it is linear."""
    long, wide = layer(16384, 16), layer(4096, 64)
    return Timed(
        [Promise("scoring of 16k tokens / as many bytes at 4k", 1.5)],
        {
            "long": partial(_best, lambda: TextGrounding().collect(long), 5),
            "wide": partial(_best, lambda: TextGrounding().collect(wide), 5),
        },
        lambda long, wide: [long / wide],
    )


def decode() -> Timed:
    """Decoding from 5 % of 8k tokens beside a full cache of as many, the full cache, and transformers' own.

    Every side is prefilled once, and goes on decoding in every repeat: short repeats are rarely disturbed.
    """
    ids, short = (shapes.prompt(length, 1, "cpu") for length in (8192, round(TGV.retention * 8192)))

    def inner(run: phases.Measured) -> float:
        return run.spent["attention"] + run.spent["cache"]

    def ratios(stock: Any, full: Any, tgv: Any, short: Any) -> list[float]:
        whole = [BATCH * run.prefill + ANSWER * run.step for run in (full, tgv)]
        return [
            inner(tgv) / inner(short),
            full.step / stock.step,
            full.step / tgv.step,
            whole[0] / whole[1],
            inner(tgv) / inner(full),
        ]

    what = f"N = 8k, batch {BATCH}"
    return Timed(
        [
            Promise(f"attention and cache per token, 5 % of 8k / a full cache of as many, batch {BATCH}", 1.25),
            Promise(f"decode step, full cache / transformers' own, {what}", 1),
            Promise(f"decode step, full / 5 %, {what}", 1, at_most=False),
            Promise(f"end to end, full / 5 %, {what}, {ANSWER} tokens", 1, at_most=False),
            Promise(f"attention and cache per token, 5 % / full, {what}"),
        ],
        {
            "stock": _Decoding(ids, None).more,
            "full": _Decoding(ids, FULL).more,
            "tgv": _Decoding(ids, TGV).more,
            "short": _Decoding(short, FULL).more,
        },
        ratios,
    )


class _Decoding:
    """Copies of a prompt that are prefilled once and then go on decoding."""

    @torch.inference_mode()
    def __init__(self, ids: torch.Tensor, config: KVConfig | None):
        self._model, self._cache = shapes.build("cpu-attention", "cpu"), DynamicCache()
        if config is not None:
            attach(self._model, config)
        started = time.perf_counter()
        token = phases.next_token(self._model, ids, self._cache)
        self._prefill = time.perf_counter() - started
        self._cache.batch_repeat_interleave(BATCH)
        self._token = token.repeat_interleave(BATCH, 0)

    @torch.inference_mode()
    def more(self) -> phases.Measured:
        """A few more tokens; the prefill's seconds are those of one copy."""
        spent: dict[str, float] = {}
        with phases.timed_parts(spent, "cpu"):
            seconds, tokens = phases.decode(self._model, self._token, self._cache, NEW, "cpu")
        self._token = tokens[:, -1:]
        return phases.Measured(self._prefill, seconds, spent=spent)


@torch.inference_mode()
def _best(function: Callable[[], object], repeats: int = 3) -> float:
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return min(seconds)

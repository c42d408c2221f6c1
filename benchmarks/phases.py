"""Prefill and decoding of one configuration, timed and weighed apart."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from benchmarks.memory import Peak
from kv_caches import KVConfig, attach, kernels
from kv_caches.cache import EvictingLayer
from kv_caches.engine import Attachment
from kv_caches.packed import PackedLayer
from kv_caches.statistics import PrefillStats


@dataclass
class Measured:
    """One run. Seconds, bytes; `spent` is host time per part of the engine, synchronised."""

    prefill: float
    steps: list[float]
    peak_prefill: int | None = None
    peak_decode: int | None = None
    kv_prompt: int = 0  # storage of the prompt's entries after eviction
    kv_room: int = 0  # storage beside them when decoding ended: generated tokens and room for more
    spent: dict[str, float] = field(default_factory=dict)
    tokens: Tensor | None = None

    @property
    def step(self) -> float:
        """Median seconds of a decode step."""
        return statistics.median(self.steps)

    def p95(self) -> float:
        """95th percentile of the decode steps, in seconds."""
        return sorted(self.steps)[min(len(self.steps) - 1, int(0.95 * len(self.steps)))]


def synchronise(device: str) -> None:
    """Wait for the device."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


@torch.inference_mode()
def run(
    model: Any,
    ids: Tensor,
    config: KVConfig | None,
    new: int,
    *,
    weigh: bool = False,
    parts: bool = False,
    copies: int = 1,
    graph: bool = False,
) -> Measured:
    """Prefill ``ids`` and decode ``new`` tokens greedily, through stock forward calls.

    Args:
        config: None leaves the model alone, with transformers' own cache.
        weigh: measure peak memory too; parts: time scoring, eviction, attention and cache updates too. Both slow the
            run down, so times are taken from runs without them.
        copies: decode so many copies of the prompts; figures of the prefill are those of ``ids`` alone.
        graph: decode steps are recorded as a CUDA graph.
    """
    device, cache = str(ids.device), DynamicCache()
    spent: dict[str, float] = {}
    attached = attach(model, config, graph=graph) if config else nullcontext()
    with attached, timed_parts(spent, device) if parts else nullcontext():
        with Peak(device) if weigh else nullcontext() as prefill_peak:
            started = time.perf_counter()
            token = next_token(model, ids, cache)
            synchronise(device)
            prefill = time.perf_counter() - started
        if copies > 1:
            cache.batch_repeat_interleave(copies)
            token = token.repeat_interleave(copies, 0)
        prompt_bytes = storage(cache)
        before = dict(spent)
        with Peak(device, prefill_peak) if weigh else nullcontext() as decode_peak:
            seconds, tokens = decode(model, token, cache, new, device)
    spent = {f"prefill {k}": v for k, v in before.items()} | {
        f"decode {k}": v - before.get(k, 0) for k, v in spent.items()
    }
    peaks = [peak.bytes if peak is not None else None for peak in (prefill_peak, decode_peak)]
    return Measured(prefill, seconds, *peaks, prompt_bytes, storage(cache) - prompt_bytes, spent, tokens)


@contextmanager
def decoding(model: Any, ids: Tensor, config: KVConfig | None) -> Iterator[Callable[[], Any]]:
    """Prefill ``ids``; then every call decodes one more token."""
    with attach(model, config) if config else nullcontext():
        cache = DynamicCache()
        tokens = [next_token(model, ids, cache)]
        yield lambda: tokens.append(next_token(model, tokens[-1], cache))


def decode(model: Any, token: Tensor, cache: Any, new: int, device: str) -> tuple[list[float], Tensor]:
    """Seconds of every step; on a GPU from events, so that the host may run ahead."""
    tokens, marks = [token], [_mark(device)]
    for _ in range(new):
        token = next_token(model, token, cache)
        tokens.append(token)
        marks.append(_mark(device))
    synchronise(device)
    if device.startswith("cuda"):
        return [a.elapsed_time(b) / 1000 for a, b in itertools.pairwise(marks)], torch.cat(tokens, dim=1)
    return [b - a for a, b in itertools.pairwise(marks)], torch.cat(tokens, dim=1)


def _mark(device: str) -> Any:
    if not device.startswith("cuda"):
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def next_token(model: Any, ids: Tensor, cache: Any) -> Tensor:
    output = model(input_ids=ids, use_cache=True, logits_to_keep=1, **{kernels.cache_argument(model): cache})
    return output.logits[:, -1:].argmax(-1)


def storage(cache: Any) -> int:
    """Bytes that the cache's keys and values keep alive, room included."""
    return sum(t.untyped_storage().nbytes() for layer in cache.layers for t in (layer.keys, layer.values))


@contextmanager
def timed_parts(spent: dict[str, float], device: str) -> Iterator[None]:
    """Adds up seconds of the engine's parts."""
    parts = [
        ("scoring", PrefillStats, "collect"),
        ("eviction", Attachment, "_evict_early"),
        ("eviction", Attachment, "_prefilled"),
        ("attention", Attachment, "attention"),
        ("cache", EvictingLayer, "update"),
        ("cache", PackedLayer, "update"),
    ]
    stock = [getattr(owner, attribute) for _, owner, attribute in parts]

    def timed(name: str, function: Callable) -> Callable:
        def call(*args: Any, **kwargs: Any) -> Any:
            synchronise(device)
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                synchronise(device)
                spent[name] = spent.get(name, 0.0) + time.perf_counter() - started

        return call

    for (name, owner, attribute), function in zip(parts, stock):
        setattr(owner, attribute, timed(name, function))
    try:
        yield
    finally:
        for (_, owner, attribute), function in zip(parts, stock):
            setattr(owner, attribute, function)

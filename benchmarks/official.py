"""What the released procedure costs: eager attention, every attention map returned, evicted afterwards.

A stand-in written from its description, for timing only: full maps of all layers exist at once, each is averaged over
heads, text rows are reduced to scores, the cache is gathered; every decode step asks for its attention again and, on a
GPU, empties the allocator's cache (Danielement321/TGV-KV kv_caches/tgv_kv.py).
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from benchmarks.phases import synchronise
from benchmarks.shapes import IMAGE
from kv_caches import kernels


@torch.inference_mode()
def run(model: Any, ids: Tensor, retention: float, new: int) -> tuple[float, list[float]]:
    """Seconds of the prefill with eviction, and of each decode step; ``model`` uses the eager kernel, batch 1."""
    device, cache = str(ids.device), DynamicCache()
    synchronise(device)
    started = time.perf_counter()
    output = _forward(model, ids, cache)
    text, vision = (ids[0] != IMAGE).nonzero().flatten(), (ids[0] == IMAGE).nonzero().flatten()
    for layer, attention in zip(cache.layers, output.attentions, strict=True):
        kept = _keep(attention[0].mean(0), text, vision, max(1, int(retention * ids.shape[1])))
        layer.keys, layer.values = layer.keys[:, :, kept].contiguous(), layer.values[:, :, kept].contiguous()
    token = output.logits[:, -1:].argmax(-1)
    del output
    synchronise(device)
    prefill, seconds = time.perf_counter() - started, []
    for step in range(new):
        started = time.perf_counter()
        output = _forward(model, token, cache, position_ids=ids.new_full((1, 1), ids.shape[1] + step))
        token = output.logits[:, -1:].argmax(-1)
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
        synchronise(device)
        seconds.append(time.perf_counter() - started)
    return prefill, seconds


def _forward(model: Any, ids: Tensor, cache: Any, **more: Any) -> Any:
    cached = {kernels.cache_argument(model): cache}
    return model(input_ids=ids, use_cache=True, output_attentions=True, logits_to_keep=1, **cached, **more)


def _keep(attention: Tensor, text: Tensor, vision: Tensor, budget: int) -> Tensor:
    """Text first, then vision by weighted text rows; (N, N) head means in, ascending positions out."""
    inner = attention[text][:, text]
    weights = inner.sum(0) / torch.arange(text.numel(), 0, -1, device=text.device)
    scores = attention.sum(0)
    scores[vision] = weights @ attention[text][:, vision]
    scores[text] += 100
    return scores.topk(budget).indices.sort().values

"""The promises about cost on a GPU, in LLaVA-1.5-7B's shape; about three minutes on a card of 141 GB."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks import machine, official, phases, shapes
from benchmarks.bounds import Finding, Promise
from benchmarks.paired import Timed
from kv_caches import KVConfig

TGV = KVConfig("tgv_kv", 0.05)


def card_decode(
    device: str = "cuda", shape: str = "llava-1.5-7b", length: int = 8192, batch: int = 16, new: int = 64
) -> Timed:
    """Decoding from 5 % beside the full cache, both recorded as graphs, and beside what the memory allows."""
    model, ids = shapes.build(shape, device), shapes.prompt(length, batch, device)
    weights, what = shapes.weight_bytes(model), f"N = {length}, batch {batch}"
    return Timed(
        [
            Promise(f"decode throughput, 5 % / full, {what}", 3, at_most=False),
            Promise(f"share of the roofline at 5 %, {what}", 0.6, at_most=False),
        ],
        {
            "bandwidth": lambda: machine.copy_bandwidth(device),
            "full": lambda: phases.run(model, ids, KVConfig(), new, graph=True),
            "tgv": lambda: phases.run(model, ids, TGV, new, graph=True),
        },
        lambda bandwidth, full, tgv: [full.step / tgv.step, (weights + tgv.kv_prompt) / bandwidth / tgv.step],
    )


def card_long_prompt(device: str = "cuda", shape: str = "llava-1.5-7b", length: int = 32768) -> list[Finding]:
    """One prompt that ours prefills on this card and the eager procedure does not."""
    model, ids = shapes.build(shape, device), shapes.prompt(length, 1, device)
    ours = _fits(lambda: phases.run(model, ids, TGV, 0))
    model.set_attn_implementation("eager")
    eager = _fits(lambda: official.run(model, ids, TGV.retention, 0))
    return [
        Finding(Promise(f"prefills of {length} tokens that fit, ours", 1, at_most=False), (ours,), counted=True),
        Finding(Promise(f"prefills of {length} tokens that fit, eager", 0), (eager,), counted=True),
    ]


CHECKS = (card_decode, card_long_prompt)


def _fits(prefill: Callable[[], object]) -> int:
    try:
        prefill()
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return 0
    return 1

"""The engine under test, driven as the oracle is: real `generate`, made to answer with given tokens."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from transformers import PreTrainedModel

from kv_caches import KVConfig, attach
from tests.oracle import Inputs, forced_logits

Positions = list[list[list[list[int]]]]  # [sample][layer][set][true prompt positions]


@dataclass(frozen=True)
class EngineRun:
    """What one run through the engine gave.

    Attributes:
        logits: (T, B, vocabulary), row 0 from the prefill.
        kept: Per sample, layer and set the true prompt positions that stayed after the prefill.
        records: One record per sample.
    """

    logits: Tensor
    kept: Positions
    records: list[dict]


def run_engine(model: PreTrainedModel, inputs: Inputs, config: KVConfig, tokens: Tensor) -> EngineRun:
    """Attach, generate with the given answer tokens, detach."""
    with attach(model, config) as attachment:
        logits = forced_logits(model, inputs, tokens)
        return EngineRun(logits, as_lists(attachment.kept), attachment.take_records())


def as_lists(kept: list) -> Positions:
    """Tensors of positions as plain lists."""
    return [[[positions.tolist() for positions in sets] for sets in layers] for layers in kept]

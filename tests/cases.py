"""One model with one batch: what the engine, the masked full cache and the naive references make of it."""

from __future__ import annotations

from functools import cache

import torch

from kv_caches import KVConfig
from tests.engine import EngineRun, run_engine
from tests.models import build
from tests.oracle import answer_tokens, forced_logits, masked_full_cache_logits, prefill_of
from tests.prompts import inputs, vision_flags
from tests.reference import REFERENCES

TOKENS = 13  # one from the prefill, twelve decode steps
TOLERANCE = 1e-5


class Case:
    """A model, a batch, the answer to force, and what stock makes of it; made once."""

    def __init__(self, family: str, prompt: tuple[str, ...], kernel: str) -> None:
        self.model = build(family, kernel)
        self.inputs = inputs(self.model, *prompt)
        self.tokens = answer_tokens(len(prompt), TOKENS)
        self.stock = forced_logits(self.model, self.inputs, self.tokens)
        self.prefills = prefill_of(self.model, self.inputs)
        self.vision = vision_flags(self.inputs)

    def run(self, method: str, retention: float, **fields: str) -> EngineRun:
        """The engine's answer."""
        config = KVConfig(method=method, retention=retention, **fields)
        return run_engine(self.model, self.inputs, config, self.tokens)

    def reference(self, method: str, retention: float, **params: object) -> list:
        """What the naive reference keeps, per sample."""
        return [
            REFERENCES[method](
                seen.attention.numpy(), seen.keys.numpy(), seen.values.numpy(), vision, retention, **params
            )
            for seen, vision in zip(self.prefills, self.vision, strict=True)
        ]

    def masked(self, kept: list, **options: object) -> torch.Tensor:
        """The oracle's answer."""
        return masked_full_cache_logits(self.model, self.inputs, self.tokens, kept, **options)


@cache
def case(family: str, prompt: tuple[str, ...], kernel: str) -> Case:
    """The same case for all tests of it."""
    return Case(family, prompt, kernel)


def assert_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Equal to the tolerance, as a share of the largest logit."""
    assert float((ours - theirs).abs().max() / theirs.abs().max()) < TOLERANCE

"""FastV: from layer K on, the prompt sees only the vision tokens that its last token looked at most in layer K - 1.

Chen et al., "An Image is Worth 1/2 Tokens After Layer 2: Plug-and-Play Inference Acceleration for Large
Vision-Language Models", ECCV 2024. Checked against pkunlp-icler/FastV
src/FastV/llava-hf/transformers/src/transformers/models/llama/modeling_llama.py. Layers 0..K-1 see everything; layers
K..L-1 see all text and the round((1 - rho) N_v) best vision tokens, those of several images ranked together.
Positions keep their ids. K is 3 (``paper``, the code's default) or 2 (``k2``, the paper's title and EffiVLM-Bench), and
never less than the number of layers that vision features are added after (Qwen3-VL: 3).

The prefill changes, so the first answer token differs too and no prefill is shared. Pruned tokens are not dropped from
the hidden states, only seen by nobody: answers and memory are FastV's, the speed of its prefill is not. A last prompt
token that is vision stays, for the answer continues from it (the released code may drop it and goes on from an earlier
token).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from ..errors import ConfigError, UnsupportedError
from ..method import Method
from ..retention import Protected
from ..scorers import HeadMean
from ..statistics import LastRow, PrefillStats

LAST = LastRow()
LOOKS = HeadMean(LAST)
VARIANTS = ("paper", "k2")


@dataclass(frozen=True)
class AfterLayerK:
    """The prompt in K layers; its text and (1 - rho) N_v vision tokens in the others.

    The share r of all entries is met by rho = (1 - r) L N / ((L - K) N_v), up to half a token in each of these layers;
    a share that even rho = 1 does not reach is an error.
    """

    k: int = 3

    def first(self, stats: PrefillStats) -> int:
        """K, the first layer that is pruned."""
        first = max(self.k, stats.deepstack)
        if first >= stats.n_layers:
            raise UnsupportedError(f"fastv prunes behind layer {first}, but the model has {stats.n_layers} layers")
        return first

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        prompt, first, layers = stats.prompt, self.first(stats), stats.n_layers
        n, text, must = prompt.length, prompt.text.numel(), int(prompt.is_vision[-1])
        keep = round((retention * layers - first) * n / (layers - first) - text, 6)  # (1 - rho) N_v
        if keep < must:
            least = (first * n + (layers - first) * (text + must)) / (layers * n)
            least = math.ceil(least * 1e4 - 1e-6) / 1e4
            raise ConfigError(
                f"KV_RETENTION={retention:g} is out of reach for fastv: it keeps {first} of {layers} layers and all "
                f"text, at least {least:g} of this prompt ({n} tokens, {n - text} of them vision); "
                f"use KV_RETENTION={least:g} (PRUNE_RATIO={1 - least:.6g}) or prune less"
            )
        return [n] * first + [text + round(keep)] * (layers - first)


@dataclass(frozen=True)
class LooksBefore:
    """What the last prompt token looks at in layer K - 1, mean over all heads."""

    budget: AfterLayerK

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        return LOOKS.score(stats, self.budget.first(stats) - 1, budget)


def build(variant: str) -> Method:
    """All text, the last token, and the most attended vision tokens."""
    pruned = AfterLayerK(k=2 if variant == "k2" else 3)
    return Method(
        name="fastv",
        paper="Chen et al., ECCV 2024",
        budget=pruned,
        scorer=LooksBefore(pruned),
        retention=Protected(last=1, text_first=True),
        variant=variant,
        needs=frozenset({LAST}),
        exact_budget=False,
        source="pkunlp-icler/FastV src/FastV/llava-hf/transformers/src/transformers/models/llama/modeling_llama.py",
        shares_prefill=False,
        prunes_prefill=True,
    )

"""StreamingLLM: the first four tokens, which soak up attention, and the most recent ones. No score at all.

Xiao et al., "Efficient Streaming Language Models with Attention Sinks", ICLR 2024. Checked against
mit-han-lab/streaming-llm streaming_llm/kv_cache.py. Keys are not re-rotated and generated tokens stay, as
everywhere here; the original rolls its window while decoding and renumbers positions inside the cache.
"""

from __future__ import annotations

from ..budgets import Uniform
from ..method import Method
from ..retention import Protected
from ..scorers import Recency

VARIANTS = ("paper",)


def build(variant: str) -> Method:
    """Budget b: positions 0..3 and the last b - 4; with b <= 4 the first b - 1 and the last."""
    return Method(
        name="streaming_llm",
        paper="Xiao et al., ICLR 2024",
        budget=Uniform(),
        scorer=Recency(),
        retention=Protected(sinks=4, last=1),
        variant=variant,
        source="mit-han-lab/streaming-llm streaming_llm/kv_cache.py",
    )

"""GPU memory that a run needs at least, against what is free."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch

from lmms_eval_plugins import checkpoint, launcher
from lmms_eval_plugins.settings import RunSettings

_LONGEST, _SHORTEST = 16384, 512
"""Tokens of a prompt: the longest that is planned for, and what a prompt with one picture has at least."""
_GIB = 2**30


def problems(run: RunSettings) -> Iterator[str]:
    """One line if the weights and one short prompt cannot fit; nothing where the size is unknown."""
    weights, least = weight_bytes(run), _SHORTEST * token_bytes(run)
    if weights is not None and weights + least > (free := free_bytes(run)):
        yield (
            f"pretrained={run.pretrained}: {weights / _GIB:.1f} GiB of weights and {least / _GIB:.1f} GiB for the "
            f"cache of one prompt of {_SHORTEST} tokens do not fit into the {free / _GIB:.1f} GiB that are free on "
            "the GPU"
        )


def notices(run: RunSettings) -> Iterator[str]:
    """One line if a batch of the longest prompts would not fit: then smaller batches are tried, so nothing stops."""
    weights, tokens = weight_bytes(run), run.batch_size * longest(run)
    if weights is not None and weights + tokens * token_bytes(run) > (free := free_bytes(run)):
        room = max(0, free - weights) // token_bytes(run)
        yield (
            f"{room} tokens of full cache fit beside the weights ({weights / _GIB:.1f} of {free / _GIB:.1f} GiB); "
            f"--batch_size {run.batch_size} with prompts of {longest(run)} tokens would need {tokens}. "
            "A batch that does not fit is tried sample by sample"
        )


def weight_bytes(run: RunSettings) -> int | None:
    """Size of the weights as they lie in memory, without loading them; None where it cannot be known."""
    from transformers import AutoModelForImageTextToText

    if getattr(run.hf_config, "quantization_config", None) is not None:
        return checkpoint.stored_bytes(run.pretrained, run.revision) or None
    with suppress(Exception), torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(run.hf_config, trust_remote_code=run.trust_remote_code)
        return sum(parameter.numel() for parameter in model.parameters()) * _element(run)
    return None


def token_bytes(run: RunSettings) -> int:
    """Size of one token in a full cache."""
    text: Any = run.hf_config.get_text_config(decoder=True)
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return 2 * text.num_hidden_layers * heads * width * _element(run)


def longest(run: RunSettings) -> int:
    """Tokens of the longest prompt that is planned for."""
    return min(run.hf_config.get_text_config(decoder=True).max_position_embeddings, _LONGEST)


def free_bytes(run: RunSettings) -> int:
    """Free memory of the GPU, or of all if the model is spread over them."""
    spread = run.device_map == "auto" and launcher.count("LOCAL_WORLD_SIZE") == 1
    devices = range(torch.cuda.device_count()) if spread else [torch.device(run.device)]
    return sum(torch.cuda.mem_get_info(device)[0] for device in devices)


def _element(run: RunSettings) -> int:
    stored = getattr(run.hf_config, "dtype", None) or torch.float32
    dtype = stored if run.dtype == "auto" else getattr(torch, run.dtype)
    return (getattr(torch, dtype) if isinstance(dtype, str) else dtype).itemsize

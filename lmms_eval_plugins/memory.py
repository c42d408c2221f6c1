"""GPU memory that a run needs at least, against what is free."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch

from lmms_eval_plugins import launcher
from lmms_eval_plugins.settings import RunSettings

_LONGEST = 16384
_GIB = 2**30


def problems(run: RunSettings) -> Iterator[str]:
    """One line if weights and one full cache cannot fit; nothing where the size is unknown."""
    needed = weight_bytes(run)
    if needed is None:
        return
    cache, tokens = cache_bytes(run)
    free = free_bytes(run)
    if needed + cache > free:
        yield (
            f"pretrained={run.pretrained}: {needed / _GIB:.1f} GiB of weights and {cache / _GIB:.1f} GiB for the cache "
            f"of {run.batch_size} x {tokens} tokens do not fit into the {free / _GIB:.1f} GiB that are free on the GPU"
        )


def weight_bytes(run: RunSettings) -> int | None:
    """Size of the weights in the run's precision, from the configuration alone."""
    from transformers import AutoModelForImageTextToText

    with suppress(Exception), torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(run.hf_config, trust_remote_code=run.trust_remote_code)
        return sum(parameter.numel() for parameter in model.parameters()) * _element(run)
    return None


def cache_bytes(run: RunSettings) -> tuple[int, int]:
    """Size of a full cache at the longest prompt, and the tokens of that prompt."""
    text: Any = run.hf_config.get_text_config(decoder=True)
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    tokens = min(text.max_position_embeddings, _LONGEST)
    return 2 * text.num_hidden_layers * heads * width * tokens * run.batch_size * _element(run), tokens


def free_bytes(run: RunSettings) -> int:
    """Free memory of the GPU, or of all if the model is spread over them."""
    spread = run.device_map == "auto" and launcher.count("LOCAL_WORLD_SIZE") == 1
    devices = range(torch.cuda.device_count()) if spread else [torch.device(run.device)]
    return sum(torch.cuda.mem_get_info(device)[0] for device in devices)


def _element(run: RunSettings) -> int:
    stored = getattr(run.hf_config, "dtype", None) or torch.float32
    dtype = stored if run.dtype == "auto" else getattr(torch, run.dtype)
    return (getattr(torch, dtype) if isinstance(dtype, str) else dtype).itemsize

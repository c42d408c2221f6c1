"""The one pair of attention and mask functions registered with transformers, over whatever kernel the model uses.

Registering only the attention function would silently drop padding, so both go in under one name. Everything that
depends on the transformers version lives in this file and, for the arguments of a forward call, in calls.py.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .errors import UnsupportedError

PREFIX = "kv_"
CACHE_NAMES = ("cache", "past_key_values")  # the second before transformers 5.2x; both are taken at any time
EVICTABLE_LAYER_TYPES = {"full_attention", "sliding_attention"}
COMPILED = (
    "the model, or a part of it around the decoder's layers, is compiled (torch.compile), and compiled code cannot "
    "follow entries that leave: load it without torch.compile; attach(model, config, graph=True) makes decoding fast"
)
#: attention module -> the attachment that handles its calls
HANDLERS: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()


def register(base: str) -> str:
    """Register our pair over kernel ``base`` ('sdpa', 'eager', 'flash_attention_2', ...); returns the pair's name."""
    if base != "eager" and base not in ALL_ATTENTION_FUNCTIONS:
        raise UnsupportedError(f"attn_implementation={base!r} is not known to transformers")
    if base not in ALL_MASK_ATTENTION_FUNCTIONS:
        raise UnsupportedError(f"attn_implementation={base!r} has no mask function, so padding cannot be respected")
    name = PREFIX + base
    AttentionInterface.register(name, partial(_attend, base))
    AttentionMaskInterface.register(name, partial(_mask, base))
    return name


def _attend(base: str, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any):
    handler = HANDLERS.get(module)
    if handler is None:
        raise UnsupportedError(f"{type(module).__name__} uses the eviction kernel but its model is not attached")
    return handler.attention(partial(_call, base, module), module, query, key, value, mask, kwargs)


def _mask(base: str, *args: Any, **kwargs: Any) -> Any:
    # One query: the layer's own validity decides, and no prompt of one token has padding.
    if kwargs.get("q_length") == 1:
        return None
    return ALL_MASK_ATTENTION_FUNCTIONS[base](*args, **kwargs)


def _call(base: str, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any):
    """The model's own kernel."""
    if base == "eager":
        eager = sys.modules[type(module).__module__].eager_attention_forward
        return eager(module, query, key, value, mask, **kwargs)
    function = ALL_ATTENTION_FUNCTIONS[base]
    if "flash" not in base:
        return function(module, query, key, value, mask, **kwargs)
    config, name = module.config, module.config._attn_implementation
    config._attn_implementation = base  # flash kernels are looked up by the name in the config
    try:
        return function(module, query, key, value, mask, **kwargs)
    finally:
        config._attn_implementation = name


def attend_newest(
    call: Callable, module: Any, query: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None, kwargs: dict
) -> tuple[Tensor, Any]:
    """Attention of one query per row over keys and values (B, G, S, d).

    Args:
        query: (B, H, 1, d). visible: (B, P, S) bool, P = 1 or G, or None when every slot is.

    Returns:
        (B, 1, H, d), and weights where the kernel returns them.
    """
    base = call.args[0]  # type: ignore[attr-defined]
    if visible is None:
        return call(query, keys, values, None, **kwargs)
    if base == "eager":
        return call(query, keys, values, _additive(visible, query), **kwargs)
    return grouped(query, keys, values, visible[:, :, None], kwargs.get("scaling")), None


def grouped(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scaling: float | None) -> Tensor:
    """Attention of one query per row; the query heads of a KV head are rows of one product, so no key is repeated.

    Args:
        query: (B, H, 1, d). keys, values: (B, G, S, d). mask: bool, fits (B, G, H / G, S).

    Returns:
        (B, 1, H, d).
    """
    batch, heads, _, dim = query.shape
    folded = query.reshape(batch, keys.shape[1], -1, dim)
    return scaled_dot_product_attention(folded, keys, values, mask, scale=scaling).reshape(batch, 1, heads, dim)


def _additive(visible: Tensor, query: Tensor) -> Tensor:
    """(B, 1 or H, 1, S) for the eager kernels, which repeat keys for their query heads."""
    if visible.shape[1] > 1:
        visible = visible.repeat_interleave(query.shape[1] // visible.shape[1], dim=1)
    hidden = ~visible[:, :, None]
    zeros = torch.zeros(hidden.shape, dtype=query.dtype, device=query.device)
    return zeros.masked_fill_(hidden, torch.finfo(query.dtype).min)


def transformers_model(model: Any) -> Any:
    """The model itself, or the one inside an unmerged PEFT model.

    Raises:
        UnsupportedError: another wrapper around a model, or compiled parts that eviction would have to go through.
    """
    if hasattr(model, "get_base_model"):  # PEFT puts its adapters into the layers of this one, and calls it
        model = model.get_base_model()
    if isinstance(model, PreTrainedModel):
        refuse_compiled(model)
        return model
    if hasattr(model, "_orig_mod"):
        raise UnsupportedError(COMPILED)
    inner = " (its .module)" if hasattr(model, "module") else ""
    raise UnsupportedError(f"{type(model).__name__} is no transformers model: attach the model inside it{inner}")


def refuse_compiled(model: Any) -> None:
    """Raise UnsupportedError if the decoder, a part of it or what it is in is compiled; a vision tower may be."""
    decoder, named = model.get_decoder(), dict(model.named_modules())
    path = next((name for name, module in named.items() if module is decoder), "")
    around = [module for name, module in named.items() if not name or path.startswith(f"{name}.")]
    if any(map(_compiled, [*around, *decoder.modules()])):
        raise UnsupportedError(COMPILED)


def _compiled(module: nn.Module) -> bool:
    forward = vars(module).get("forward")
    return (
        hasattr(module, "_orig_mod")
        or getattr(module, "_compiled_call_impl", None) is not None
        or hasattr(forward, "_torchdynamo_orig_callable")
    )


def attention_modules(model: Any) -> list[nn.Module]:
    """The decoder's attention modules in layer order.

    Raises:
        UnsupportedError: layers of a type that entries cannot be evicted from.
    """
    text_config = model.config.get_text_config(decoder=True)
    types = set(getattr(text_config, "layer_types", None) or []) - EVICTABLE_LAYER_TYPES
    if types:
        raise UnsupportedError(f"{type(model).__name__} has layers of type {', '.join(sorted(types))}: not evictable")
    found = {
        m.layer_idx: m
        for m in model.get_decoder().modules()
        if isinstance(getattr(m, "layer_idx", None), int) and hasattr(m, "q_proj") and hasattr(m, "scaling")
    }
    if sorted(found) != list(range(text_config.num_hidden_layers)):
        raise UnsupportedError(f"{type(model).__name__}: cannot find one attention module per decoder layer")
    return [found[i] for i in sorted(found)]


def inverse_frequencies(model: Any) -> Tensor | None:
    """(d / 2,) rotation per position of each feature pair of the decoder, or None without rotary positions."""
    found = (getattr(m, "inv_freq", None) for m in model.get_decoder().modules())
    return next((f for f in found if isinstance(f, Tensor)), None)


def deepstack_layers(model: Any) -> int:
    """First decoder layers whose outputs have vision features added to them (Qwen3-VL); 0 in other models."""
    return len(getattr(getattr(model.config, "vision_config", None), "deepstack_visual_indexes", None) or ())


def rotary(module: Any, pair: tuple[Tensor, Tensor] | None) -> tuple[Tensor, ...] | None:
    """The (cos, sin) an attention module was called with, as (B or 1, N, d) each.

    Before transformers 5.2x Qwen2.5-VL passes one for each M-RoPE axis; they are joined by its sections.
    """
    if pair is None or pair[0].dim() == 3:
        return pair
    rope = getattr(module.config, "rope_parameters", None) or module.config.rope_scaling
    sections = list(rope["mrope_section"]) * 2
    return tuple(
        torch.cat([part[i % 3] for i, part in enumerate(table.split(sections, dim=-1))], dim=-1) for table in pair
    )


def cache_argument(model: Any) -> str:
    """Name of the cache argument of ``model.forward``: 'cache', or 'past_key_values' before transformers 5.2x."""
    return next((name for name in CACHE_NAMES if name in inspect.signature(model.forward).parameters), CACHE_NAMES[1])


def adopt(cache: Any, layers: list) -> None:
    """Replace the layers of an empty stock cache in place, so that ``generate`` keeps its own reference to it.

    Raises:
        UnsupportedError: a static, quantized, offloaded or foreign cache.
    """
    if type(cache) is not DynamicCache or cache.offloading:
        raise UnsupportedError(
            f"{type(cache).__name__} (offloading: {getattr(cache, 'offloading', False)}) cannot be evicted from; "
            "leave cache_implementation unset"
        )
    cache.layers = layers
    cache.layer_class_to_replicate = None

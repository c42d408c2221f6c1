"""Attention of one layer with random states, in the ways that are compared."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.llama.modeling_llama import eager_attention_forward

from kv_caches.attention import LayerView
from kv_caches.prompt import Prompt
from kv_caches.statistics import TextGrounding


def layer(n: int, heads: int = 16) -> LayerView:
    """Random states of heads of 64, a prompt with 64 text tokens."""
    vision = torch.ones(n, dtype=torch.bool)
    vision[:32] = vision[-32:] = False
    queries, keys, values = torch.randn(3, heads, n, 64)
    return LayerView(queries, keys, values, Prompt(vision), 64**-0.5)


def sdpa(one: LayerView) -> Tensor:
    """The kernel that a prefill runs on."""
    return scaled_dot_product_attention(one.queries[None], one.keys[None], one.values[None], is_causal=True)


def sdpa_with_scoring(one: LayerView) -> None:
    """TGV-KV's share of a layer's attention."""
    sdpa(one)
    TextGrounding().collect(one)


def eager_attention(one: LayerView) -> Tensor:
    """The released way: the whole map of every head, and their mean (N, N)."""
    module = torch.nn.Module().eval()
    module.num_key_value_groups = 1
    mask = torch.full((one.length, one.length), torch.finfo(torch.float32).min).triu(1)[None, None]
    states = [states[None] for states in (one.queries, one.keys, one.values)]
    return eager_attention_forward(module, *states, mask, one.scaling)[1].mean(1)

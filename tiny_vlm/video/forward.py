"""The forward passes that training uses: the stock weights, on some of the vision tokens."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from tiny_vlm.video.world import GRID

WATCHED_HEADS = (0, 2)
"""Heads of each language-model layer whose attention weights training can see; they have different KV heads."""


def cell_features(tower: nn.Module, pixels: torch.Tensor, cells: torch.Tensor, apart: torch.Tensor) -> torch.Tensor:
    """What the language model gets from the vision tower for some cells.

    Args:
        tower: the `Qwen3VLVisionModel`.
        pixels: (B, N, 4, 1536), the four patches of each cell in the order of the processor.
        cells: (B, N) places in a frame, 0..48.
        apart: (B, N, N) or (1, 1, 1), true where cells are of different seconds and must not see each other.

    Returns:
        (levels, B, N, D): deepstack features in the order of the layers, then the main ones.
    """
    batch, count = cells.shape
    quarter = torch.arange(4)
    rows = (cells // GRID)[..., None] * 2 + quarter // 2
    columns = (cells % GRID)[..., None] * 2 + quarter % 2
    rows, columns = rows.flatten(1), columns.flatten(1)  # (B, 4 N)
    projection = tower.patch_embed.proj
    x = F.linear(pixels.flatten(1, 2), projection.weight.flatten(1), projection.bias)
    x = x + tower.pos_embed(rows * (2 * GRID) + columns)
    cosine, sine = tower.rotary_pos_emb(x, torch.stack([rows, columns], -1).flatten(0, 1))
    cosine, sine = (part.unflatten(0, (batch, 4 * count)) for part in (cosine, sine))
    mask = torch.zeros(apart.shape).masked_fill(apart, float("-inf"))
    if apart.shape[1] > 1:
        mask = mask.repeat_interleave(4, 1).repeat_interleave(4, 2)
    levels = []
    for i, block in enumerate(tower.blocks):
        x = x + _tower_attention(block.attn, block.norm1(x), cosine, sine, mask[:, None])
        x = x + block.mlp(block.norm2(x))
        if i in tower.deepstack_visual_indexes:
            merger = tower.deepstack_merger_list[tower.deepstack_visual_indexes.index(i)]
            levels.append(_merge(merger, merger.norm(_by_cell(x))))
    levels.append(_merge(tower.merger, _by_cell(tower.merger.norm(x))))
    return torch.stack(levels)


def _by_cell(x: torch.Tensor) -> torch.Tensor:
    """(B, 4 N, D) -> (B, N, 4 D)."""
    return x.unflatten(1, (-1, 4)).flatten(2)


def _merge(merger: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return merger.linear_fc2(merger.act_fn(merger.linear_fc1(x)))


def _tower_attention(
    attention: nn.Module, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Plain matrix products: on a CPU their backward is much faster than that of the fused kernel."""
    q, k, v = attention.qkv(x).unflatten(-1, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)  # (B, H, N, D)
    q, k = _rotate(q, cosine, sine).to(v.dtype), _rotate(k, cosine, sine).to(v.dtype)
    weights = (q @ k.transpose(-1, -2) * attention.scaling + mask).softmax(-1).to(v.dtype)
    return attention.proj((weights @ v).transpose(1, 2).flatten(2))


def answer_hidden(
    language: nn.Module,
    features: torch.Tensor,
    ids: torch.Tensor,
    positions: torch.Tensor,
    place: torch.Tensor,
    run: Callable,
) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """The language model on text and kept vision tokens.

    Args:
        language: the `Qwen3VLTextModel`.
        features: (levels, B, N, D) from `cell_features`.
        ids, place: (B, T) and positions: (3, B, T), see `Sequences`.
        run: `decoder_layer`, perhaps compiled (all layers share one compiled graph).

    Returns:
        Hidden states after the final norm (B, T, D), and for each layer those after it, before any norm, and the
        attention weights of WATCHED_HEADS, (B, 2, T, T).
    """
    index = place.clamp(min=0)[None, ..., None].expand(features.shape[0], -1, -1, features.shape[-1])
    vision = features.float().gather(2, index) * (place >= 0)[..., None]
    x = torch.where(place[..., None] >= 0, vision[-1], language.embed_tokens(ids))
    cosine, sine = language.rotary_emb(x, positions)
    future = torch.full((ids.shape[1], ids.shape[1]), float("-inf")).triu(1).to(torch.bfloat16)
    states, seen = [], []
    for i, layer in enumerate(language.layers):
        x, weights = run(layer, x, cosine, sine, future)
        seen.append(weights)
        if i < len(vision) - 1:
            x = x + vision[i]
        states.append(x)
    return language.norm(x), states, seen


def decoder_layer(
    layer: nn.Module, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, future: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One layer on x (B, T, D); also returns the attention weights of WATCHED_HEADS."""
    attention = layer.self_attn
    normed = layer.input_layernorm(x)
    q, k, v = (
        part(normed).unflatten(-1, (-1, attention.head_dim))
        for part in (attention.q_proj, attention.k_proj, attention.v_proj)
    )  # (B, T, H or H_kv, D)
    q, k, v = attention.q_norm(q).transpose(1, 2), attention.k_norm(k).transpose(1, 2), v.transpose(1, 2)
    q, k = _rotate(q, cosine, sine).to(v.dtype), _rotate(k, cosine, sine).to(v.dtype)
    groups = attention.num_key_value_groups
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    weights = (q @ k.transpose(-1, -2) * attention.scaling + future).softmax(-1).to(v.dtype)
    x = x + attention.o_proj((weights @ v).transpose(1, 2).flatten(2))
    return x + layer.mlp(layer.post_attention_layernorm(x)), weights[:, list(WATCHED_HEADS)]


def _rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cosine[:, None] + torch.cat([-second, first], dim=-1) * sine[:, None]

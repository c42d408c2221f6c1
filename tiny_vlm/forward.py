"""The forward passes that training uses: the stock weights, on some of the patches."""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F


def patch_features(tower: nn.Module, pixels: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """What LLaVA takes from the vision tower (its last layer, before the final norm), from a part of the patches.

    Args:
        pixels: (B, N, 588), see `PageBatch`.
        cells: (B, N) positions in 0..575.

    Returns:
        (B, N, D).
    """
    weight = tower.embeddings.patch_embedding.weight
    x = F.linear(pixels, weight.flatten(1), tower.embeddings.patch_embedding.bias)
    x = x + tower.embeddings.position_embedding(cells)
    for layer in tower.encoder.layers:
        x = x + _tower_attention(layer.self_attn, layer.layer_norm1(x))
        x = x + layer.mlp(layer.layer_norm2(x))
    return x


def _tower_attention(attention: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Plain matrix products: on a CPU their backward is much faster than that of the fused kernel."""
    q, k, v = (
        part(x).unflatten(-1, (attention.num_heads, attention.head_dim)).transpose(1, 2)
        for part in (attention.q_proj, attention.k_proj, attention.v_proj)
    )  # (B, H, N, D)
    weights = (q @ k.transpose(-1, -2) * attention.scale).softmax(-1).to(v.dtype)
    return attention.out_proj((weights @ v).transpose(1, 2).flatten(2))


def answer_hidden(
    model: nn.Module,
    features: torch.Tensor,
    ids: torch.Tensor,
    positions: torch.Tensor,
    patch: torch.Tensor,
    watched: Sequence[int],
    run: Callable,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The language model on text and kept patches.

    Args:
        model: the inner `LlavaModel`.
        features: (B, N, D_vision) from `patch_features`.
        ids, positions, patch: (B, T), see `Sequences`.
        watched: layers whose first attention head is returned.
        run: `llama_layer`, perhaps compiled (all layers share one compiled graph).

    Returns:
        Hidden states after the final norm (B, T, D), and attention weights of the watched heads, (B, T, T) each.
    """
    llama = model.language_model
    images = model.multi_modal_projector(features)
    images = images.gather(1, patch.clamp(min=0)[..., None].expand(-1, -1, images.shape[-1]))
    x = torch.where(patch[..., None] >= 0, images.float(), llama.embed_tokens(ids))
    cosine, sine = llama.rotary_emb(x, positions)
    future = torch.full((ids.shape[1], ids.shape[1]), float("-inf")).triu(1).to(torch.bfloat16)
    seen = []
    for i, layer in enumerate(llama.layers):
        x, weights = run(layer, x, cosine, sine, future)
        if i in watched:
            seen.append(weights)
    return llama.norm(x), seen


def llama_layer(
    layer: nn.Module, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, future: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One layer on x (B, T, D); also returns the attention weights of its first head (B, T, T)."""
    attention = layer.self_attn
    normed = layer.input_layernorm(x)
    q, k, v = (
        part(normed).unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)
        for part in (attention.q_proj, attention.k_proj, attention.v_proj)
    )  # (B, H or H_kv, T, D)
    q, k = _rotate(q, cosine, sine).to(v.dtype), _rotate(k, cosine, sine).to(v.dtype)
    groups = attention.num_key_value_groups
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    weights = (q @ k.transpose(-1, -2) * attention.scaling + future).softmax(-1).to(v.dtype)
    x = x + attention.o_proj((weights @ v).transpose(1, 2).flatten(2))
    return x + layer.mlp(layer.post_attention_layernorm(x)), weights[:, 0]


def _rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cosine[:, None] + torch.cat([-second, first], dim=-1) * sine[:, None]

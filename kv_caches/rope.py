"""Rotary positions for methods that imagine future queries: take a query's position away, or give it a later one."""

from __future__ import annotations

import torch
from torch import Tensor

from .attention import LayerView


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE in the half-split layout of Llama, Mistral and Qwen: feature i turns with feature i + d / 2."""
    return x * cos + _turned(x) * sin


def unrotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Inverse of :func:`rotate`, the attention scaling that some models put into cos and sin included."""
    return (x * cos - _turned(x) * sin) / (cos.square() + sin.square())


def later(layer: LayerView, steps: Tensor) -> tuple[Tensor, Tensor]:
    """(cos, sin), (M, d) float32, ``steps`` positions behind the last prompt token.

    All axes of M-RoPE move together, as they do for generated text.
    """
    cos, sin = last_rotary(layer)
    assert layer.inv_freq is not None
    angle = steps.to(cos.device)[:, None] * layer.inv_freq.float().to(cos.device).repeat(2)
    return cos * angle.cos() - sin * angle.sin(), sin * angle.cos() + cos * angle.sin()


def last_rotary(layer: LayerView) -> tuple[Tensor, Tensor]:
    """(cos, sin) of the last prompt token, (d,) float32."""
    assert layer.rotary is not None
    cos, sin = layer.rotary
    return cos[-1].float(), sin[-1].float()


def _turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)

"""Models of real size with random weights, and prompts of any length: timing depends on neither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PretrainedConfig,
    Qwen3Config,
)

VOCABULARY, IMAGE = 32064, 32000
TEXT_ROWS = 64
_LONGEST = 1 << 16


@dataclass(frozen=True)
class Shape:
    """The decoder of a vision-language model; the vision tower is the same for every method and is left out."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    mlp: int
    head_dim: int
    config: type[PretrainedConfig] = LlamaConfig

    @property
    def parameters(self) -> int:
        """Number of weights, embedding and output matrix included; norms are left out."""
        attention = 2 * self.hidden * (self.heads + self.kv_heads) * self.head_dim
        return self.layers * (attention + 3 * self.hidden * self.mlp) + 2 * VOCABULARY * self.hidden

    def kv_entries(self, tokens: int) -> int:
        """Numbers in the keys and values of all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * tokens

    def text_config(self) -> PretrainedConfig:
        return self.config(
            vocab_size=VOCABULARY,
            hidden_size=self.hidden,
            intermediate_size=self.mlp,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            max_position_embeddings=_LONGEST,
        )


SHAPES = {
    "llava-1.5-7b": Shape(32, 4096, 32, 32, 11008, 128),
    "qwen3-vl-8b": Shape(36, 4096, 32, 8, 12288, 128, Qwen3Config),
    "cpu": Shape(8, 1024, 16, 16, 2816, 64),
    "cpu-short": Shape(2, 1024, 16, 16, 2816, 64),
    "cpu-attention": Shape(4, 512, 8, 8, 1024, 64),
    "smoke": Shape(2, 64, 4, 2, 96, 16),
}


def number_bytes(device: str) -> int:
    """Size of a weight or cached number: bfloat16 on a GPU, float32 on a CPU."""
    return 2 if device.startswith("cuda") else 4


def build(name: str, device: str, attention: str = "sdpa") -> Any:
    """The model in bfloat16 on a GPU, in float32 on a CPU."""
    vision = CLIPVisionConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8
    )
    config = LlavaConfig(text_config=SHAPES[name].text_config(), vision_config=vision, image_token_index=IMAGE)
    config._attn_implementation = attention
    before = torch.get_default_dtype()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16 if device.startswith("cuda") else torch.float32)
    try:
        with torch.device(device):
            model = LlavaForConditionalGeneration(config)
    finally:
        torch.set_default_dtype(before)
    model.set_attn_implementation(attention)
    return model.eval()


def prompt(length: int, batch: int, device: str) -> Tensor:
    """(batch, length) ids: half of the text, one long image, the other half."""
    ids = torch.full((batch, length), IMAGE)
    half = min(TEXT_ROWS, length // 2) // 2
    ids[:, :half] = torch.arange(1, half + 1)
    ids[:, -half:] = torch.arange(100, half + 100)
    return ids.to(device)


def weight_bytes(model: Any) -> int:
    """What a decode step reads of the weights: all of the decoder but the embedding table."""
    embedding = model.get_input_embeddings().weight
    used = [*model.get_decoder().parameters(), model.lm_head.weight]
    return sum(weight.nbytes for weight in used if weight is not embedding)

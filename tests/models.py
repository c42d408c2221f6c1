"""Tiny random vision-language models, one per family, with weights large enough that any error shows."""

from __future__ import annotations

import math
from functools import cache

import torch
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    MistralConfig,
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    SiglipVisionConfig,
)

FAMILIES = ("llava", "llava_next", "llava_onevision", "qwen2_5_vl", "qwen3_vl")
IMAGE, VIDEO, VISION_START, VISION_END = 120, 121, 122, 123
PAD, VOCABULARY = 0, 128
TILE, PATCH = 16, 4  # pixels a side of a picture tile and of a patch: 16 patches a tile
PINPOINTS = [[16, 32], [32, 16], [32, 32]]
ATTENTION_GAIN = 2.0  # keeps the attention far from uniform without making it one-hot

TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": PAD,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": TILE,
    "patch_size": PATCH,
}


@cache
def build(family: str, kernel: str = "sdpa") -> PreTrainedModel:
    """The model of a family; the same object every time.

    Args:
        family: One of FAMILIES, or "llava_next_sliding" for a decoder with a window of eight tokens.
        kernel: Its attention implementation, "eager" or "sdpa".
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = {
            "llava": llava,
            "llava_next": llava_next,
            "llava_next_sliding": lambda: llava_next(sliding_window=8),
            "llava_onevision": llava_onevision,
            "qwen2_5_vl": qwen2_5_vl,
            "qwen3_vl": qwen3_vl,
        }[family]()
        scale_up(model)
    model.set_attn_implementation(kernel)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = PAD
    return model.eval()


def llava() -> PreTrainedModel:
    """LLaVA-1.5 over Llama: 16 vision tokens an image."""
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**VISION, projection_dim=32),
        text_config=LlamaConfig(**TEXT),
        image_token_index=IMAGE,
        image_seq_length=16,
    )
    return LlavaForConditionalGeneration(config)


def llava_next(sliding_window: int | None = None) -> PreTrainedModel:
    """LLaVA-NeXT over Mistral: a base tile, finer tiles, and newline tokens."""
    config = LlavaNextConfig(
        vision_config=CLIPVisionConfig(**VISION, projection_dim=32),
        text_config=MistralConfig(**TEXT, sliding_window=sliding_window),
        image_token_index=IMAGE,
        image_grid_pinpoints=PINPOINTS,
    )
    return LlavaNextForConditionalGeneration(config)


def llava_onevision() -> PreTrainedModel:
    """LLaVA-OneVision over Qwen2: tiles for one image, one tile each for several, pooled video frames."""
    config = LlavaOnevisionConfig(
        vision_config=SiglipVisionConfig(**VISION, vision_use_head=False),
        text_config=Qwen2Config(**TEXT),
        image_token_index=IMAGE,
        video_token_index=VIDEO,
        image_grid_pinpoints=PINPOINTS,
    )
    return LlavaOnevisionForConditionalGeneration(config)


def qwen_config(text: dict, vision: dict) -> dict:
    """What both Qwen families say in the same words."""
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    shared = {"hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": PATCH}
    return {
        "text_config": TEXT | {"rope_parameters": rope} | text,
        "vision_config": shared | {"out_hidden_size": TEXT["hidden_size"]} | vision,
        "image_token_id": IMAGE,
        "video_token_id": VIDEO,
        "vision_start_token_id": VISION_START,
        "vision_end_token_id": VISION_END,
    }


def qwen2_5_vl() -> PreTrainedModel:
    """Qwen2.5-VL: window attention in the vision tower, M-RoPE in sections."""
    vision = {"depth": 2, "window_size": 16, "fullatt_block_indexes": [1]}
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(**qwen_config({}, vision)))


def qwen3_vl() -> PreTrainedModel:
    """Qwen3-VL: deepstack features, query and key norms, interleaved M-RoPE."""
    vision = {"depth": 3, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]}
    return Qwen3VLForConditionalGeneration(Qwen3VLConfig(**qwen_config({"head_dim": 16}, vision)))


@torch.no_grad()
def scale_up(model: PreTrainedModel) -> None:
    """Draw weights that keep activations near one, and attention logits well above it."""
    for name, weight in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            weight.normal_(math.sqrt(ATTENTION_GAIN), 0.3)
        elif weight.dim() == 1:
            weight.normal_(1.0 if "norm" in name and "bias" not in name else 0.0, 0.1)
        elif "embed_tokens" in name:
            weight.normal_(0.0, 1.0)
        else:
            gain = math.sqrt(ATTENTION_GAIN) if name.endswith(("q_proj.weight", "k_proj.weight")) else 1.0
            weight.normal_(0.0, gain / math.sqrt(weight[0].numel()))

"""The untrained model: stock Qwen3-VL classes, 3.9 M parameters."""

import torch
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerBase,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLTextConfig,
    Qwen3VLVisionConfig,
)

from tiny_vlm.video.processor import build_tokenizer
from tiny_vlm.video.world import CELL, GRID

SHARPNESS = 2.0
"""First weight of the norms of queries and keys: with 1 the largest possible attention logit is 5.7."""


def build_model(tokenizer: PreTrainedTokenizerBase | None = None, seed: int = 0) -> Qwen3VLForConditionalGeneration:
    """Returns the model in float32 with its initial weights."""
    tokenizer = tokenizer or build_tokenizer()
    torch.manual_seed(seed)
    model = Qwen3VLForConditionalGeneration(build_config(tokenizer))
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight", "attn.proj.weight", "mlp.linear_fc2.weight")):
            parameter.data.mul_(0.5)
        elif name.endswith(("q_norm.weight", "k_norm.weight")):
            parameter.data.fill_(SHARPNESS)
    _initialise_tower(model.model.visual)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=False,
        max_new_tokens=128,
    )
    return model.eval()


@torch.no_grad()
def _initialise_tower(tower: torch.nn.Module) -> None:
    """First weights such that all features have a variance of about one."""
    projection = tower.patch_embed.proj.weight
    projection.normal_(std=projection[0].numel() ** -0.5)
    tower.pos_embed.weight.normal_(std=0.3)
    for merger in (tower.merger, *tower.deepstack_merger_list):
        for linear in (merger.linear_fc1, merger.linear_fc2):
            linear.weight.normal_(std=linear.in_features**-0.5)


def build_config(tokenizer: PreTrainedTokenizerBase) -> Qwen3VLConfig:
    vision = Qwen3VLVisionConfig(
        depth=3,
        hidden_size=128,
        intermediate_size=384,
        num_heads=4,
        patch_size=CELL // 2,
        out_hidden_size=192,
        num_position_embeddings=(2 * GRID) ** 2,
        deepstack_visual_indexes=[0, 1],
        initializer_range=0.06,
    )
    text = Qwen3VLTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=416,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=32,
        max_position_embeddings=4096,
        initializer_range=0.06,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 1000.0,
            "mrope_section": [6, 5, 5],
            "mrope_interleaved": True,
        },
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    names = {
        "image_token_id": "<|image_pad|>",
        "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>",
        "vision_end_token_id": "<|vision_end|>",
    }
    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in names.items()}
    return Qwen3VLConfig(vision_config=vision, text_config=text, tie_word_embeddings=True, **ids)

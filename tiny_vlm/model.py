"""The untrained model: stock LLaVA classes with a SigLIP tower and a Llama language model, 3.5 M parameters."""

import torch
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedTokenizerBase,
    SiglipVisionConfig,
)

from tiny_vlm.canvas import CELL, SIDE
from tiny_vlm.mimetic import initialise_tower


def build_model(tokenizer: PreTrainedTokenizerBase, seed: int = 0) -> LlavaForConditionalGeneration:
    """Returns the model in float32 with its initial weights."""
    torch.manual_seed(seed)
    model = LlavaForConditionalGeneration(build_config(tokenizer))
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight", "out_proj.weight", "fc2.weight")):
            parameter.data.mul_(0.5)
    initialise_tower(model.model.vision_tower)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=False,
        max_new_tokens=24,
    )
    return model


def build_config(tokenizer: PreTrainedTokenizerBase) -> LlavaConfig:
    vision = SiglipVisionConfig(
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=SIDE,
        patch_size=CELL,
        vision_use_head=False,
    )
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=32,
        max_position_embeddings=1024,
        initializer_range=0.06,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=(SIDE // CELL) ** 2,
        projector_hidden_act="gelu",
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
        tie_word_embeddings=True,
    )

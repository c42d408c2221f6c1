"""Tiny random checkpoints of every family, processors included, made without network."""

from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.models import scale_up

SPECIAL = [
    "<pad>",
    "</s>",
    "<end>",
    "<image>",
    "<video>",
    "<|im_start|>",
    "<|im_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
]
LETTERS = [chr(code) for code in range(32, 127)] + ["\n"]
IDS = {token: i for i, token in enumerate(SPECIAL + LETTERS)}
VOCABULARY = len(IDS)

_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% elif part['type'] == 'video' %}VIDEO{% else %}IMAGE{% endif %}{% endfor %}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}answer:{% endif %}"
)


def _template(image: str, video: str) -> str:
    return _TEMPLATE.replace("IMAGE", image).replace("VIDEO", video)


def _tokenizer(eos: str, template: str) -> hf.PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel(IDS, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token=eos,
        unk_token="?",
        additional_special_tokens=SPECIAL[2:],
    )
    fast.chat_template = template
    return fast


_LM = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "bos_token_id": None,
    "eos_token_id": IDS["</s>"],
    "pad_token_id": IDS["<pad>"],
    "tie_word_embeddings": False,
}
_VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 56,
    "patch_size": 14,
}


def _save(model: Any, processor: Any, folder: Path) -> Path:
    """Saves with weights scaled up, so that answers depend on what is in the cache."""
    with torch.no_grad():
        scale_up(model)
        model.lm_head.weight[: len(SPECIAL)] = 0  # so that answers are text, and long
    model.generation_config.eos_token_id = [IDS["</s>"], IDS["<end>"]]
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def llava(folder: Path) -> Path:
    torch.manual_seed(0)
    config = hf.LlavaConfig(
        vision_config=hf.CLIPVisionConfig(**_VISION, projection_dim=32),
        text_config=hf.LlamaConfig(**_LM),
        image_token_id=IDS["<image>"],
        image_seq_length=16,
        vision_feature_layer=-1,
    )
    pictures = hf.CLIPImageProcessor(size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56})
    processor = hf.LlavaProcessor(
        image_processor=pictures,
        tokenizer=_tokenizer("</s>", _template("<image>", "<video>")),
        patch_size=14,
        vision_feature_select_strategy="default",
        chat_template=_template("<image>", "<video>"),
        num_additional_image_tokens=1,
    )
    return _save(hf.LlavaForConditionalGeneration(config), processor, folder)


def llava_next(folder: Path) -> Path:
    torch.manual_seed(4)
    grid = [[56, 112], [112, 56], [112, 112]]
    config = hf.LlavaNextConfig(
        vision_config=hf.CLIPVisionConfig(**_VISION, projection_dim=32),
        text_config=hf.MistralConfig(**_LM, sliding_window=None),
        image_token_id=IDS["<image>"],
        image_seq_length=16,
        image_grid_pinpoints=grid,
        vision_feature_layer=-1,
    )
    size = {"size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56}}
    processor = hf.LlavaNextProcessor(
        image_processor=hf.LlavaNextImageProcessor(**size, image_grid_pinpoints=grid),
        tokenizer=_tokenizer("</s>", _template("<image>", "<video>")),
        patch_size=14,
        vision_feature_select_strategy="default",
        chat_template=_template("<image>", "<video>"),
        num_additional_image_tokens=1,
    )
    return _save(hf.LlavaNextForConditionalGeneration(config), processor, folder)


def llava_onevision(folder: Path) -> Path:
    torch.manual_seed(1)
    grid = [[56, 56], [56, 112], [112, 56], [112, 112]]
    config = hf.LlavaOnevisionConfig(
        vision_config=hf.SiglipVisionConfig(**_VISION, vision_use_head=False),
        text_config=hf.Qwen2Config(**_LM),
        image_token_id=IDS["<image>"],
        video_token_id=IDS["<video>"],
        image_grid_pinpoints=grid,
        vision_feature_layer=-1,
    )
    size = {"height": 56, "width": 56}
    processor = hf.LlavaOnevisionProcessor(
        image_processor=hf.LlavaOnevisionImageProcessor(size=size, image_grid_pinpoints=grid),
        tokenizer=_tokenizer("</s>", _template("<image>", "<video>")),
        video_processor=hf.LlavaOnevisionVideoProcessor(size=size),
        num_image_tokens=16,
        vision_feature_select_strategy="full",
        chat_template=_template("<image>", "<video>"),
    )
    return _save(hf.LlavaOnevisionForConditionalGeneration(config), processor, folder)


_QWEN_IDS = {
    "image_token_id": IDS["<|image_pad|>"],
    "video_token_id": IDS["<|video_pad|>"],
    "vision_start_token_id": IDS["<|vision_start|>"],
    "vision_end_token_id": IDS["<|vision_end|>"],
}
_QWEN_TEMPLATE = _template("<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>")


def qwen2_5_vl(folder: Path) -> Path:
    torch.manual_seed(2)
    rope = {"rope_type": "default", "type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64}
    config = hf.Qwen2_5_VLConfig(
        text_config={**_LM, "rope_parameters": rope, "rope_scaling": rope},
        vision_config={**vision, "patch_size": 14, "fullatt_block_indexes": [1], "window_size": 56},
        **_QWEN_IDS,
    )
    processor = hf.Qwen2_5_VLProcessor(
        image_processor=hf.Qwen2VLImageProcessor(),
        tokenizer=_tokenizer("</s>", _QWEN_TEMPLATE),
        video_processor=hf.Qwen2VLVideoProcessor(),
        chat_template=_QWEN_TEMPLATE,
    )
    return _save(hf.Qwen2_5_VLForConditionalGeneration(config), processor, folder)


def qwen3_vl(folder: Path) -> Path:
    torch.manual_seed(3)
    rope = {
        "rope_type": "default",
        "mrope_section": [4, 2, 2],
        "mrope_interleaved": True,
        "rope_theta": 10000.0,
    }
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64}
    config = hf.Qwen3VLConfig(
        text_config={**_LM, "head_dim": 16, "rope_parameters": rope, "rope_scaling": rope},
        vision_config={
            **vision,
            "patch_size": 16,
            "deepstack_visual_indexes": [0],
            "num_position_embeddings": 64,
        },
        **_QWEN_IDS,
    )
    processor = hf.Qwen3VLProcessor(
        image_processor=hf.Qwen2VLImageProcessor(patch_size=16),
        tokenizer=_tokenizer("</s>", _QWEN_TEMPLATE),
        video_processor=hf.Qwen3VLVideoProcessor(),
        chat_template=_QWEN_TEMPLATE,
    )
    return _save(hf.Qwen3VLForConditionalGeneration(config), processor, folder)


BUILD = {
    "llava": llava,
    "llava_next": llava_next,
    "llava_onevision": llava_onevision,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
}
"""By `model_type`: makes the checkpoint in a folder and returns it."""


def lmms_name(model_type: str) -> str:
    """The lmms-eval model that loads it."""
    return "llava_hf" if model_type.startswith("llava") else model_type

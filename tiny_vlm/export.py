"""Writes the model as a directory that stock transformers loads."""

from pathlib import Path

import torch
from transformers import LlavaForConditionalGeneration, LlavaProcessor


def export(model: LlavaForConditionalGeneration, processor: LlavaProcessor, folder: Path) -> None:
    """Saves weights in half precision, configs, tokenizer and processor to `folder`; `model` stays as it is."""
    half = {name: tensor.to(torch.float16) for name, tensor in model.state_dict().items()}
    model.save_pretrained(folder, state_dict=half)
    processor.save_pretrained(folder)

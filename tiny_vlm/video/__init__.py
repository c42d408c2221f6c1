"""A small Qwen3-VL-architecture model, trained on generated videos, that runs everywhere stock transformers runs."""

from pathlib import Path

MODEL_DIR = Path(__file__).parent / "weights"
"""Directory for `AutoProcessor.from_pretrained` and `Qwen3VLForConditionalGeneration.from_pretrained`."""

__all__ = ["MODEL_DIR"]

"""A small LLaVA-architecture model, trained on generated pictures, that runs everywhere stock transformers runs."""

from pathlib import Path

MODEL_DIR = Path(__file__).parent / "weights"
"""Directory for `AutoProcessor.from_pretrained` and `LlavaForConditionalGeneration.from_pretrained`."""

__all__ = ["MODEL_DIR"]

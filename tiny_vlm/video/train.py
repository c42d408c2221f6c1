"""Trains the model from nothing: `python -m tiny_vlm.video.train --out DIR` (one thread; times in the README).

After each stage the weights are in DIR/<stage>.pt; a run that is started again goes on after the last of them.
"""

from typing import Any

from tiny_vlm.stagewise import run
from tiny_vlm.video.lm_stage import train_lm
from tiny_vlm.video.model import build_model
from tiny_vlm.video.processor import build_processor
from tiny_vlm.video.stages import STAGES, VisionStage
from tiny_vlm.video.vision_stage import train_vision


def build() -> tuple[Any, Any]:
    """The processor and the untrained model."""
    processor = build_processor()
    return processor, build_model(processor.tokenizer)


def train(model: Any, processor: Any, stage: Any) -> None:
    """One stage."""
    if isinstance(stage, VisionStage):
        train_vision(model, stage)
    else:
        train_lm(model, processor.tokenizer, stage)


if __name__ == "__main__":
    run(__doc__, STAGES, build, train)

"""Trains the model from nothing: `python -m tiny_vlm.video.train --out DIR` (one thread; times in the README).

After each stage the weights are in DIR/<stage>.pt; a run that is started again goes on after the last of them.
"""

import argparse
from pathlib import Path

import torch

from tiny_vlm.export import export
from tiny_vlm.video.lm_stage import train_lm
from tiny_vlm.video.model import build_model
from tiny_vlm.video.processor import build_processor
from tiny_vlm.video.stages import STAGES, VisionStage, log
from tiny_vlm.video.vision_stage import train_vision


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    processor = build_processor()
    model = build_model(processor.tokenizer)
    for stage in STAGES:
        path = arguments.out / f"{stage.name}.pt"
        if path.exists():
            log(f"{stage.name} is done: {path}")
            model.load_state_dict(torch.load(path))
            continue
        if isinstance(stage, VisionStage):
            train_vision(model, stage)
        else:
            train_lm(model, processor.tokenizer, stage)
        _save(model, path)
        export(model, processor, arguments.out / "final")
        if stage.name == arguments.until:
            return


def _save(model: torch.nn.Module, path: Path) -> None:
    """Writes under a temporary name first, so that a file that exists is complete."""
    temporary = path.with_suffix(".tmp")
    torch.save(model.state_dict(), temporary)
    temporary.replace(path)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="directory for checkpoints and the final model")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default 1)")
    parser.add_argument("--until", choices=[stage.name for stage in STAGES], help="stop after this stage")
    return parser.parse_args()


if __name__ == "__main__":
    main()

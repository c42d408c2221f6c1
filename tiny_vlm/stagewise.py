"""What both training commands share: stage after stage; a run started again goes on after the last whole one."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from tiny_vlm.export import export


def run(
    about: str, stages: Sequence[Any], build: Callable[[], tuple[Any, Any]], train: Callable[[Any, Any, Any], None]
) -> None:
    """Command line.

    Args:
        about: the text of --help. build: makes (processor, untrained model). train: trains (model, processor, stage).
    """
    arguments = _arguments(about, [stage.name for stage in stages])
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    processor, model = build()
    for stage in stages:
        path = arguments.out / f"{stage.name}.pt"
        if path.exists():
            print(f"{stage.name} is done: {path}", flush=True)
            model.load_state_dict(torch.load(path))
            continue
        train(model, processor, stage)
        _save(model, path)
        export(model, processor, arguments.out / "final")
        if stage.name == arguments.until:
            return


def _save(model: torch.nn.Module, path: Path) -> None:
    """Writes under a temporary name first, so that a file that exists is complete."""
    temporary = path.with_suffix(".tmp")
    torch.save(model.state_dict(), temporary)
    temporary.replace(path)


def _arguments(about: str, stages: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="directory for checkpoints and the final model")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default 1)")
    parser.add_argument("--until", choices=stages, help="stop after this stage")
    return parser.parse_args()

"""The schedule of training: what each stage sees, for how long, and with which aids."""

from dataclasses import dataclass


def log(text: str) -> None:
    print(text, flush=True)


@dataclass(frozen=True)
class Stage:
    """Common to all stages.

    Attributes:
        kinds: pages of each kind in one batch.
        most: the most lines, bars or shapes of a page.
        patches: patches kept of each page; 576 is all.
        first: index of the first training page; stages use different ones.
    """

    name: str
    steps: int
    patches: int
    first: int
    muon_lr: float
    adam_lr: float
    kinds: dict[str, int]
    most: dict[str, int]
    seed: int = 0
    compile: bool = True


@dataclass(frozen=True)
class VisionStage(Stage):
    """The vision tower alone, with classifiers for each patch."""


@dataclass(frozen=True)
class LMStage(Stage):
    """Projector and language model, with the vision tower frozen.

    Attributes:
        supervision: weight of the attention aid; it falls to zero over the second half of the stage.
        fit_projector: give the projector new first weights that fit the trained tower.
        parts: groups of similar length that a batch is split into.
    """

    supervision: float = 0.0
    fit_projector: bool = False
    parts: int = 2


HARD = {"document": 10, "chart": 6, "scene": 6, "caption": 5}

EASY = {"document": 5, "chart": 5, "scene": 5, "caption": 4}

STAGES: list[Stage] = [
    VisionStage(
        "vision",
        steps=1200,
        patches=96,
        first=0,
        muon_lr=0.02,
        adam_lr=2e-3,
        kinds={"document": 24, "chart": 16, "scene": 12, "caption": 12},
        most=HARD,
    ),
    LMStage(
        "lookup",
        steps=700,
        patches=64,
        first=100_000,
        muon_lr=0.02,
        adam_lr=2e-3,
        kinds={"document": 12, "chart": 10, "scene": 12, "caption": 6},
        most=EASY,
        supervision=1.0,
        fit_projector=True,
    ),
    LMStage(
        "hard",
        steps=800,
        patches=96,
        first=200_000,
        muon_lr=0.012,
        adam_lr=1.5e-3,
        kinds={"document": 14, "chart": 8, "scene": 10, "caption": 8},
        most=HARD,
        supervision=0.5,
    ),
    LMStage(
        "dense",
        steps=300,
        patches=256,
        first=300_000,
        muon_lr=0.008,
        adam_lr=8e-4,
        kinds={"document": 9, "chart": 5, "scene": 6, "caption": 4},
        most=HARD,
    ),
    LMStage(
        "whole",
        steps=260,
        patches=576,
        first=400_000,
        muon_lr=0.006,
        adam_lr=6e-4,
        kinds={"document": 4, "chart": 2, "scene": 4, "caption": 2},
        most=HARD,
        supervision=0.3,
        parts=1,
    ),
]

"""The schedule of training: what each stage sees, for how long, and with which aids."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stage:
    """Common to all stages. `first` is the index of the first training sample; stages use different ones."""

    name: str
    steps: int
    first: int
    muon_lr: float
    adam_lr: float
    seed: int = 0
    compile: bool = True


@dataclass(frozen=True)
class VisionStage(Stage):
    """The vision tower alone, with classifiers for each cell.

    Attributes:
        pairs: frame pairs in a batch.
        counts: cells kept of a frame pair, in turns.
    """

    pairs: int = 48
    counts: tuple[int, ...] = (8, 16, 49, 16)


@dataclass(frozen=True)
class LMStage(Stage):
    """The language model, with the vision tower frozen.

    Attributes:
        tokens: vision tokens kept of a video; 392 is all.
        kinds: videos of each kind in one batch.
        styles: relative frequency of each style of question.
        hints: which attention aids are given, see `lm_stage.WATCHED`.
        supervision: weight of the attention aids; it falls to zero over the second half of the stage.
        parts: groups of similar length that a batch is split into.
    """

    tokens: int = 32
    kinds: dict[str, int] = field(default_factory=dict)
    styles: dict[str, int] = field(default_factory=lambda: PLAIN)
    hints: tuple[str, ...] = ("stamp", "previous", "asked", "evidence", "option")
    supervision: float = 0.0
    parts: int = 3


PLAIN = {"primary": 70, "paraphrase": 30}
ALL = {"primary": 30, "paraphrase": 20, "wrong_leading": 15, "correct_leading": 10, "multiple_choice": 25}
CHOICE = {"primary": 15, "paraphrase": 10, "wrong_leading": 10, "correct_leading": 5, "multiple_choice": 60}
HINTS_OF_CHOICE = ("stamp", "previous", "asked", "evidence", "option", "letter", "present")

STAGES: list[Stage] = [
    VisionStage("vision", steps=800, first=0, muon_lr=0.02, adam_lr=2e-3),
    LMStage(
        "lookup",
        steps=500,
        first=100_000,
        muon_lr=0.02,
        adam_lr=2e-3,
        tokens=28,
        kinds={"moment": 24, "order": 12, "motion": 8, "describe": 6},
        supervision=1.0,
    ),
    LMStage(
        "styles",
        steps=1000,
        first=200_000,
        muon_lr=0.015,
        adam_lr=1.5e-3,
        tokens=40,
        kinds={"moment": 16, "order": 20, "motion": 5, "describe": 8},
        styles=ALL,
        supervision=0.5,
    ),
    LMStage(
        "choice",
        steps=500,
        first=300_000,
        muon_lr=0.02,
        adam_lr=2e-3,
        tokens=28,
        kinds={"moment": 24, "order": 14, "motion": 8, "describe": 4},
        styles=CHOICE,
        hints=HINTS_OF_CHOICE,
        supervision=0.5,
    ),
    LMStage(
        "settle",
        steps=380,
        first=400_000,
        muon_lr=0.012,
        adam_lr=1.2e-3,
        tokens=48,
        kinds={"moment": 16, "order": 12, "motion": 5, "describe": 14},
        styles=ALL,
        hints=HINTS_OF_CHOICE,
        supervision=0.3,
    ),
]

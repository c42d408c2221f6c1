"""Samples of the four kinds of videos, the same on every machine.

    >>> from tiny_vlm.video.data import KINDS, make_samples
    >>> make_samples("moment", "test", 2)[0].question

Everything about a sample follows from its name, such as `order-test-0012`, so train and test differ by seed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tiny_vlm.rng import Rng
from tiny_vlm.video import questions
from tiny_vlm.video.questions import Asked
from tiny_vlm.video.render import frames
from tiny_vlm.video.world import FPS

KINDS = tuple(questions.KINDS)
SPLITS = ("train", "test")


@dataclass(frozen=True)
class VideoSample:
    """One video with a question in several styles.

    Attributes:
        id: such as "moment-test-0007".
        frames: (16, 224, 224, 3) uint8.
        fps: 2.0, so the video lasts eight seconds.
        question: the primary question, without any chat markup.
        paraphrase: the same in other words.
        wrong_leading: the primary question after one that suggests a wrong answer.
        correct_leading: the same with the right answer.
        options: four choices.
        correct: index of the right one.
        multiple_choice: the primary question with the options as the model knows them, "... A. red B. blue ...".
        answer: what a right answer contains; for "describe" all of it.
        answers: accepted answers, `answer` first, then the whole sentence.
        topic: what is asked, such as "colour" or "when".
    """

    id: str
    frames: np.ndarray
    fps: float
    question: str
    paraphrase: str
    wrong_leading: str
    correct_leading: str
    options: tuple[str, ...]
    correct: int
    multiple_choice: str
    answer: str
    answers: tuple[str, ...]
    topic: str


def make_samples(kind: str, split: str, n: int) -> list[VideoSample]:
    """The first `n` samples of a kind and split; see `iter_samples`."""
    return list(iter_samples(kind, split, n))


def iter_samples(kind: str, split: str, n: int, start: int = 0) -> Iterator[VideoSample]:
    """Yields samples `start` to `start + n - 1`.

    Raises:
        ValueError: for an unknown kind or split.
    """
    _check(kind, KINDS, "kind")
    _check(split, SPLITS, "split")
    for index in range(start, start + n):
        asked = make_asked(kind, split, index)
        yield VideoSample(
            id=sample_id(kind, split, index),
            frames=frames(asked.world),
            fps=FPS,
            question=asked.text("primary"),
            paraphrase=asked.text("paraphrase"),
            wrong_leading=asked.text("wrong_leading"),
            correct_leading=asked.text("correct_leading"),
            options=asked.options,
            correct=asked.correct,
            multiple_choice=asked.text("multiple_choice"),
            answer=asked.answer,
            answers=tuple(dict.fromkeys((asked.answer, asked.reply_text("primary")))),
            topic=asked.topic,
        )


def make_asked(kind: str, split: str, index: int) -> Asked:
    """The world and question behind a sample, with the evidence for training."""
    return questions.KINDS[kind](Rng(sample_id(kind, split, index)))


def sample_id(kind: str, split: str, index: int) -> str:
    return f"video-{kind}-{split}-{index:04d}"


def _check(value: str, allowed: tuple[str, ...], what: str) -> None:
    if value not in allowed:
        raise ValueError(f"unknown {what} {value!r}; expected one of {', '.join(allowed)}")

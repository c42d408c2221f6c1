"""Samples of the four kinds of questions, the same on every machine.

    >>> from tiny_vlm.data import KINDS, make_samples
    >>> make_samples("document", "test", 2)[0].question

Everything about a sample follows from its name, such as `chart-test-0012`, so train and test differ by seed.
Evidence is placed uniformly over the picture; see `pages.py` for what each kind draws and asks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from PIL import Image

from tiny_vlm import pages
from tiny_vlm.pages import Page
from tiny_vlm.rng import Rng

KINDS = ("document", "chart", "scene", "caption")
SPLITS = ("train", "test")

_DRAW: dict[str, Callable[..., Page]] = {
    "document": pages.document,
    "chart": pages.chart,
    "scene": pages.scene,
    "caption": pages.caption,
}


@dataclass(frozen=True)
class Sample:
    """One picture with a question.

    Attributes:
        id: such as "document-test-0007".
        image: 336 x 336 RGB.
        question: without any chat markup.
        answers: accepted answers, the canonical one first.
        objects: for captions the objects to be named ("red circle"), else empty.
    """

    id: str
    image: Image.Image
    question: str
    answers: tuple[str, ...]
    objects: tuple[str, ...] = ()


def make_samples(kind: str, split: str, n: int) -> list[Sample]:
    """The first `n` samples of a kind and split; see `iter_samples`."""
    return list(iter_samples(kind, split, n))


def iter_samples(kind: str, split: str, n: int, start: int = 0) -> Iterator[Sample]:
    """Yields samples `start` to `start + n - 1`.

    Raises:
        ValueError: for an unknown kind or split.
    """
    _check(kind, KINDS, "kind")
    _check(split, SPLITS, "split")
    for index in range(start, start + n):
        page = make_page(kind, split, index)
        yield Sample(
            id=sample_id(kind, split, index),
            image=Image.fromarray(page.canvas.pixels()),
            question=page.question,
            answers=(page.answer,),
            objects=page.objects,
        )


def make_page(kind: str, split: str, index: int, **difficulty: int) -> Page:
    """The drawn page behind a sample, with labels and evidence for training."""
    return _DRAW[kind](Rng(sample_id(kind, split, index)), **difficulty)


def sample_id(kind: str, split: str, index: int) -> str:
    return f"{kind}-{split}-{index:04d}"


def _check(value: str, allowed: tuple[str, ...], what: str) -> None:
    if value not in allowed:
        raise ValueError(f"unknown {what} {value!r}; expected one of {', '.join(allowed)}")

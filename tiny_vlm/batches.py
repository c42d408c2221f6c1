"""Training batches: pages with most blank patches left out, five to nine times fewer tokens than whole pictures."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from tiny_vlm.canvas import BAR, GRID
from tiny_vlm.data import make_page
from tiny_vlm.pages import Page
from tiny_vlm.rng import Rng

PATCHES = GRID * GRID


@dataclass
class PageBatch:
    """`count` patches of each page, in reading order.

    Attributes:
        pixels: (B, count, 3 * 14 * 14) in [-1, 1], channel first as in a convolution's weight.
        cells: (B, count) which of the 576 patches.
        labels: (B, count, 6), see `canvas.LABELS`; -1 is no label.
        pages: the pages themselves.
    """

    pixels: torch.Tensor
    cells: torch.Tensor
    labels: torch.Tensor
    pages: list[Page]


def page_batches(
    kinds: Mapping[str, int], most: Mapping[str, int], count: int, first: int, steps: int
) -> Iterator[PageBatch]:
    """Yields `steps` batches.

    Args:
        kinds: pages of each kind in a batch.
        most: the most lines, bars or shapes of each kind (the difficulty).
        count: patches kept of each page.
        first: index of the first training page of each kind, so that stages do not repeat pages.
    """
    for step in range(steps):
        pages, kept = [], []
        for kind, size in kinds.items():
            for index in range(first + step * size, first + (step + 1) * size):
                pages.append(make_page(kind, "train", index, most=most[kind]))
                kept.append(keep_cells(pages[-1], count, Rng(f"kept-{kind}-{index}")))
        yield _collate(pages, kept)


def keep_cells(page: Page, count: int, rng: Rng) -> np.ndarray:
    """All cells with a character or a shape, and others drawn at random up to `count`, sorted."""
    character = page.canvas.labels[0].ravel()
    needed = np.flatnonzero((character > 0) & (character != BAR))
    others = np.setdiff1d(np.arange(PATCHES), needed, assume_unique=True)
    fill = count - len(needed)
    if fill < 0:
        raise ValueError(f"{len(needed)} patches carry something, but only {count} may be kept")
    if fill >= len(others):
        return np.arange(PATCHES)
    return np.sort(np.concatenate([needed, np.array(rng.sample(others.tolist(), fill), dtype=np.int64)]))


def _collate(pages: list[Page], kept: list[np.ndarray]) -> PageBatch:
    patches = np.stack([page.canvas.patches(cells) for page, cells in zip(pages, kept, strict=True)])
    flat = torch.from_numpy(patches).permute(0, 1, 4, 2, 3).flatten(2)
    labels = [page.canvas.labels.reshape(-1, PATCHES)[:, cells].T for page, cells in zip(pages, kept, strict=True)]
    return PageBatch(
        pixels=flat.float() / 127.5 - 1,
        cells=torch.from_numpy(np.stack(kept)),
        labels=torch.from_numpy(np.stack(labels)),
        pages=pages,
    )

"""Training batches: cells of videos with most blank ones left out, and crowded frames for the vision tower."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tiny_vlm.glyphs import SHAPES
from tiny_vlm.rng import Rng
from tiny_vlm.video.data import make_asked, sample_id
from tiny_vlm.video.questions import Asked
from tiny_vlm.video.render import BLANK_LABELS, labels, shown, tile
from tiny_vlm.video.world import CELL, CELLS, COLOURS, DIRECTIONS, GRID, SECONDS, Colour, Item, World


@dataclass
class CellBatch:
    """`count` cells of each of B frames pairs: pixels (B, count, 4, 1536), cells and labels (B, count, ...)."""

    pixels: torch.Tensor
    cells: torch.Tensor
    labels: torch.Tensor


@dataclass
class VideoBatch:
    """`count` vision tokens of each video, in order.

    Attributes:
        pixels: (B, count, 4, 1536) in [-1, 1].
        tokens: (B, count) which of the 392 vision tokens.
        asked: the videos and their questions.
        styles: the style in which each question is asked.
    """

    pixels: torch.Tensor
    tokens: torch.Tensor
    asked: list[Asked]
    styles: list[str]


def video_batches(
    kinds: Mapping[str, int], styles: Mapping[str, int], count: int, first: int, steps: int
) -> Iterator[VideoBatch]:
    """Yields `steps` batches.

    Args:
        kinds: videos of each kind in a batch.
        styles: relative frequency of each style of question.
        count: vision tokens kept of each video.
        first: index of the first training sample of each kind, so that stages do not repeat videos.
    """
    for step in range(steps):
        asked, asked_in, kept, tiles = [], [], [], []
        for kind, size in kinds.items():
            for index in range(first + step * size, first + (step + 1) * size):
                rng = Rng("training-" + sample_id(kind, "train", index))
                asked.append(make_asked(kind, "train", index))
                asked_in.append(_style(rng, styles))
                kept.append(keep_tokens(asked[-1].world, count, rng))
                tiles.append(_tiles(asked[-1].world, kept[-1]))
        yield VideoBatch(patches(np.stack(tiles)), torch.from_numpy(np.stack(kept)), asked, asked_in)


def keep_tokens(world: World, count: int, rng: Rng) -> np.ndarray:
    """All vision tokens that show something, and others drawn at random up to `count`, sorted.

    Raises:
        ValueError: where more than `count` show something.
    """
    total = SECONDS * CELLS
    needed = np.array(sorted(shown(world)), dtype=np.int64)
    if len(needed) > count:
        raise ValueError(f"{len(needed)} vision tokens show something, but only {count} may be kept")
    if count >= total:
        return np.arange(total)
    others = np.setdiff1d(np.arange(total), needed, assume_unique=True)
    return np.sort(np.concatenate([needed, np.array(rng.sample(others.tolist(), count - len(needed)), dtype=np.int64)]))


def crowded_batches(pairs: int, counts: Sequence[int], first: int, steps: int) -> Iterator[CellBatch]:
    """Yields `steps` batches of `pairs` frame pairs with many things in them; counts of kept cells take turns."""
    for step in range(steps):
        count = counts[step % len(counts)]
        tiles = np.empty((pairs, count, 2, CELL, CELL, 3), dtype=np.uint8)
        cells = np.empty((pairs, count), dtype=np.int64)
        meaning = np.empty((pairs, count, len(BLANK_LABELS)), dtype=np.int64)
        for i in range(pairs):
            rng = Rng(f"crowd-{first + step * pairs + i}")
            world = _crowd(rng, count)
            tiles[i] = world.paper
            cells[i] = np.sort(np.array(rng.sample(range(CELLS), count)))
            meaning[i] = BLANK_LABELS
            for j, item in enumerate(world.items):
                slot = rng.below(count)
                moved = _at(item, divmod(int(cells[i, slot]), GRID))
                second = moved.end - 1 if j % 3 else moved.start
                tiles[i, slot] = tile(world, moved, second)
                meaning[i, slot] = labels(moved, second)
        noise = torch.randn(pairs, count, 4, 1536) * 0.04 * torch.rand(pairs, 1, 1, 1)
        yield CellBatch(patches(tiles) + noise, torch.from_numpy(cells), torch.from_numpy(meaning))


def patches(tiles: np.ndarray) -> torch.Tensor:
    """Cells (B, N, 2, 32, 32, 3) uint8 -> patches (B, N, 4, 1536) in [-1, 1] as the processor lays them out."""
    half = CELL // 2
    parts = torch.from_numpy(tiles).unflatten(4, (2, half)).unflatten(3, (2, half))  # (B, N, T, h, 16, w, 16, C)
    return parts.permute(0, 1, 3, 5, 7, 2, 4, 6).flatten(4).flatten(2, 3).float() / 127.5 - 1


def _style(rng: Rng, shares: Mapping[str, int]) -> str:
    left = rng.below(sum(shares.values()))
    for style, share in shares.items():
        left -= share
        if left < 0:
            return style
    raise AssertionError("the shares add up to their sum")


def _tiles(world: World, kept: np.ndarray) -> np.ndarray:
    """(N, 2, 32, 32, 3)."""
    tiles = np.empty((len(kept), 2, CELL, CELL, 3), dtype=np.uint8)
    tiles[:] = world.paper
    for token, (item, second) in shown(world).items():
        tiles[np.searchsorted(kept, token)] = tile(world, item, second)
    return tiles


def _crowd(rng: Rng, count: int) -> World:
    """Up to `count` things of two seconds each, without places."""
    ink = (rng.below(80), rng.below(80), rng.below(80))
    paper = (rng.between(215, 255), rng.between(215, 255), rng.between(215, 255))
    items = [_thing(rng, ink) for _ in range(rng.between(count // 4, count))]
    return World(tuple(items), paper, rng.below(3))


def _thing(rng: Rng, ink: Colour) -> Item:
    offset = (rng.below(7), rng.below(7))
    if rng.chance(40):
        return Item("", str(rng.between(10, 99)), ("", ""), 0, ((0, 0),) * 2, "", offset, (ink,) * 2)
    colour = rng.pick(list(COLOURS))
    red, green, blue = (max(0, min(255, part + rng.between(-18, 18))) for part in COLOURS[colour])
    direction = rng.pick(list(DIRECTIONS)) if rng.chance(60) else ""
    return Item(rng.pick(SHAPES), "", (colour,) * 2, 0, ((0, 0),) * 2, direction, offset, ((red, green, blue),) * 2)


def _at(item: Item, cell: tuple[int, int]) -> Item:
    return Item(item.shape, item.number, item.colours, 0, (cell, cell), item.direction, item.offset, item.inks)

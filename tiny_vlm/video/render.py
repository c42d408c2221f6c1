"""Pixels of a world, whole frames or only the cells that are asked for, in integers: the same on every machine."""

import numpy as np

from tiny_vlm.glyphs import CHARACTERS, GLYPH_SIZE, SHAPE_SIZE, SHAPES, load_glyphs, shape_bitmaps
from tiny_vlm.video.world import CELL, CELLS, COLOURS, DIRECTIONS, GRID, SECONDS, SIDE, Item, World

LABELS = ("what", "colour", "first digit", "second digit", "direction", "appears", "row", "column")
CLASSES = (2 + len(SHAPES), len(COLOURS), 10, 10, 1 + len(DIRECTIONS), 2, GRID, GRID)
NUMBER = 1 + len(SHAPES)
UNSEEN = -1
TRAVEL = 3
"""Pixels that a moving thing is behind the middle of its cell in the first frame, and ahead of it in the second."""

_GLYPHS = load_glyphs()
_SHAPES = shape_bitmaps()


def frames(world: World) -> np.ndarray:
    """The whole video: (16, 224, 224, 3) uint8."""
    cells = np.empty((SECONDS * CELLS, 2, CELL, CELL, 3), dtype=np.uint8)
    cells[:] = world.paper
    for token, (item, second) in shown(world).items():
        cells[token] = tile(world, item, second)
    grid = cells.reshape(SECONDS, GRID, GRID, 2, CELL, CELL, 3).transpose(0, 3, 1, 4, 2, 5, 6)
    return np.ascontiguousarray(grid).reshape(SECONDS * 2, SIDE, SIDE, 3)


def shown(world: World) -> dict[int, tuple[Item, int]]:
    """Vision tokens that show something: token -> (item, second)."""
    return {item.token(second): (item, second) for item in world.items for second in range(item.start, item.end)}


def tile(world: World, item: Item, second: int) -> np.ndarray:
    """Both frames of the cell that shows `item`: (2, 32, 32, 3) uint8."""
    coverage = np.stack([_coverage(world, item, frame) for frame in (0, 1)])
    if second == item.start:
        coverage[0] = 0
    cover = coverage[..., None].astype(np.int64)
    ink = np.array(item.inks[second - item.start])
    return ((np.array(world.paper) * (255 - cover) + ink * cover + 127) // 255).astype(np.uint8)


def labels(item: Item, second: int) -> list[int]:
    """What a cell that shows `item` means, in the order of LABELS; -1 where it has no such meaning."""
    row, column = item.cells[second - item.start]
    appears = second == item.start
    direction = 1 + list(DIRECTIONS).index(item.direction) if item.direction else 0
    seen = UNSEEN if appears else direction
    if item.number:
        first, last = map(int, item.number)
        return [NUMBER, UNSEEN, first, last, seen, int(appears), row, column]
    colour = list(COLOURS).index(item.colours[second - item.start])
    return [1 + SHAPES.index(item.shape), colour, UNSEEN, UNSEEN, seen, int(appears), row, column]


BLANK_LABELS = [0] + [UNSEEN] * (len(LABELS) - 1)


def _coverage(world: World, item: Item, frame: int) -> np.ndarray:
    """(32, 32) uint8 coverage of the item in its cell."""
    cell = np.zeros((CELL, CELL), dtype=np.uint8)
    down, right = item.offset
    if item.number:
        for digit, left in zip(item.number, (1 + right // 2, CELL // 2 + right // 2)):
            glyph = _GLYPHS[world.font, CHARACTERS.index(digit)]
            cell[5 + down : 5 + down + GLYPH_SIZE, left : left + GLYPH_SIZE] = glyph
        return cell
    if item.direction:
        step = TRAVEL if frame else -TRAVEL
        step_down, step_right = DIRECTIONS[item.direction]
        down = TRAVEL + step * step_down if step_down else down
        right = TRAVEL + step * step_right if step_right else right
    cell[down : down + SHAPE_SIZE, right : right + SHAPE_SIZE] = _SHAPES[SHAPES.index(item.shape)]
    return cell

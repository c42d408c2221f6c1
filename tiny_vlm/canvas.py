"""A page of 24 x 24 cells of 14 x 14 pixels: what is drawn where, and what each cell means.

A cell is one patch of the vision tower. Each cell has one ink, so a page is stored as coverage per pixel and
ink per cell, and only the cells that are asked for are turned into colours.
"""

import numpy as np

from tiny_vlm.glyphs import CHARACTERS, GLYPH_SIZE, SHAPE_SIZE, SHAPES, load_glyphs, shape_bitmaps
from tiny_vlm.rng import Rng

GRID = 24
CELL = 14
SIDE = GRID * CELL

LABELS = ("character", "key", "index", "colour", "order", "slot")
CHARACTER_CLASSES = 1 + len(CHARACTERS) + len(SHAPES) + 1  # blank, glyphs, shapes, bar
BAR = CHARACTER_CLASSES - 1

_GLYPHS = load_glyphs()
_SHAPES = shape_bitmaps()

Colour = tuple[int, int, int]


class Canvas:
    """Drawing calls take cell coordinates (row, column); labels are -1 where a cell has no such meaning."""

    def __init__(self, paper: Colour, ink: Colour, font: int):
        self.paper = paper
        self.inks = [ink]
        self.font = font
        self.coverage = np.zeros((SIDE, SIDE), dtype=np.uint8)
        self.tint = np.zeros((GRID, GRID), dtype=np.int64)
        self.labels = np.full((len(LABELS), GRID, GRID), -1, dtype=np.int64)
        self.labels[0] = 0

    def write(self, rng: Rng, text: str, row: int, column: int, key: int = -1, indexed: bool = False) -> list[int]:
        """Writes `text` one character a cell, shifted by up to one pixel. Returns the cells."""
        cells = []
        for i, character in enumerate(text):
            code = CHARACTERS.index(character)
            top = row * CELL + rng.below(3)
            left = (column + i) * CELL + rng.below(3)
            self.coverage[top : top + GLYPH_SIZE, left : left + GLYPH_SIZE] = _GLYPHS[self.font, code]
            self.labels[:3, row, column + i] = (1 + code, key, i if indexed else -1)
            cells.append(row * GRID + column + i)
        return cells

    def shape(
        self, rng: Rng, shape: int, ink: Colour, row: int, column: int, meaning: tuple[int, int, int]
    ) -> list[int]:
        """Draws a shape over 2 x 2 cells. `meaning` is (colour, order, slot). Returns the four cells."""
        top = row * CELL + rng.below(3)
        left = column * CELL + rng.below(3)
        self.coverage[top : top + SHAPE_SIZE, left : left + SHAPE_SIZE] = _SHAPES[shape]
        block = (slice(row, row + 2), slice(column, column + 2))
        self.tint[block] = len(self.inks)
        self.inks.append(ink)
        self.labels[(slice(None), *block)] = np.array([1 + len(CHARACTERS) + shape, shape_key(shape), -1, *meaning])[
            :, None, None
        ]
        corner = row * GRID + column
        return [corner, corner + 1, corner + GRID, corner + GRID + 1]

    def bar(self, ink: Colour, column: int, bottom_row: int, height: int) -> None:
        """Draws a bar ten pixels wide, `height` pixels high, that stands on the lower edge of `bottom_row`."""
        bottom = (bottom_row + 1) * CELL
        self.coverage[bottom - height : bottom, column * CELL + 2 : column * CELL + 12] = 255
        rows = slice((bottom - height) // CELL, bottom_row + 1)
        self.tint[rows, column] = len(self.inks)
        self.inks.append(ink)
        self.labels[0, rows, column] = BAR

    def patches(self, cells: np.ndarray) -> np.ndarray:
        """Colours of some cells: (count,) -> (count, 14, 14, 3) uint8."""
        rows, columns = cells // GRID, cells % GRID
        tiles = self.coverage.reshape(GRID, CELL, GRID, CELL).transpose(0, 2, 1, 3)[rows, columns]
        shades = tiles + 256 * self.tint[rows, columns][:, None, None]
        return self._palette().reshape(-1, 3).take(shades, axis=0)

    def pixels(self) -> np.ndarray:
        """The whole page, (336, 336, 3) uint8."""
        tiles = self.patches(np.arange(GRID * GRID)).reshape(GRID, GRID, CELL, CELL, 3)
        return np.ascontiguousarray(tiles.transpose(0, 2, 1, 3, 4)).reshape(SIDE, SIDE, 3)

    def _palette(self) -> np.ndarray:
        """(inks, 256, 3) uint8: paper mixed with each ink for every coverage, rounded in integers."""
        cover = np.arange(256)[None, :, None]
        inks = np.array(self.inks)[:, None, :]
        mixed = np.array(self.paper) * (255 - cover) + inks * cover
        return ((mixed + 127) // 255).astype(np.uint8)


def shape_key(shape: int) -> int:
    """Shapes come first among the keys that the vision tower learns to bind values to."""
    return shape

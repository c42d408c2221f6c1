"""What happens in a video: coloured shapes and numbers appear one after another, stay, move, change and vanish.

A video has eight seconds of two frames each, on a 7 x 7 grid of cells of 32 x 32 pixels. A cell in one second is one
vision token of the model. Things change between seconds, with two exceptions that make both frames of a second
matter: a thing appears in the second frame of its first second, and a moving thing is ahead in the second frame.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tiny_vlm.glyphs import SHAPES
from tiny_vlm.rng import Rng

GRID = 7
CELL = 32
SIDE = GRID * CELL
SECONDS = 8
FPS = 2.0
CELLS = GRID * GRID

COLOURS = {
    "red": (205, 25, 30),
    "green": (25, 145, 45),
    "blue": (30, 60, 205),
    "yellow": (225, 200, 20),
    "purple": (120, 30, 150),
    "pink": (240, 120, 185),
}
DIRECTIONS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Item:
    """A shape or a number, from `start` on for as many seconds as it has cells.

    Attributes:
        shape: name of a shape, or "" for a number.
        number: two digits, or "" for a shape.
        colours: name of the colour in each second, "" for a number.
        cells: (row, column) in each second.
        direction: where it moves, "" if it stays.
        offset: pixels between the cell's corner and the bitmap, (down, right), 0..6.
        inks: drawn colour in each second.
    """

    shape: str
    number: str
    colours: tuple[str, ...]
    start: int
    cells: tuple[tuple[int, int], ...]
    direction: str
    offset: tuple[int, int]
    inks: tuple[Colour, ...]

    @property
    def end(self) -> int:
        return self.start + len(self.cells)

    @property
    def name(self) -> str:
        """Such as "red star" or "number 42", in its first second."""
        return f"{self.colours[0]} {self.shape}" if self.shape else f"number {self.number}"

    def token(self, second: int) -> int:
        """Index, among all 392 vision tokens of the video, of the one that shows the item in that second."""
        row, column = self.cells[second - self.start]
        return second * CELLS + row * GRID + column


@dataclass(frozen=True)
class World:
    """Items in order of appearance; no two start in the same second, or share a cell in a second."""

    items: tuple[Item, ...]
    paper: Colour
    font: int

    @property
    def shapes(self) -> list[Item]:
        return [item for item in self.items if item.shape]

    @property
    def numbers(self) -> list[Item]:
        return [item for item in self.items if item.number]


def make_world(rng: Rng, shapes: int, numbers: int, movers: int = 0, changing: bool = False) -> World:
    """Draws a world with that many shapes (all different) and numbers (never two at a time).

    Args:
        movers: at most that many of the shapes move.
        changing: shapes change their colour once.
    """
    starts = sorted(rng.sample(range(SECONDS), shapes + numbers))
    number_places = set(rng.sample(range(len(starts)), numbers))
    ends = {starts[i]: SECONDS for i in number_places}
    for first, second in zip(sorted(ends), sorted(ends)[1:]):
        ends[first] = second
    names = iter(rng.sample(SHAPES, shapes))
    movable = [i for i, start in enumerate(starts) if i not in number_places and start <= SECONDS - 3]
    moving = dict(zip(rng.sample(movable, min(movers, len(movable))), rng.sample(list(DIRECTIONS), 4)))
    used: set[int] = set()
    ink = (rng.below(80), rng.below(80), rng.below(80))
    items = []
    for i, start in enumerate(starts):
        direction = moving.get(i, "")
        longest = ends.get(start, SECONDS) - start
        length = min(rng.between(3 if direction else 2, 4), longest)
        cells = _path(rng, used, start, length, direction)
        offset = (rng.below(7), rng.below(7))
        if i in number_places:
            number = str(rng.between(10, 99))
            items.append(Item("", number, ("",) * length, start, cells, direction, offset, (ink,) * length))
        else:
            colours, inks = _colours(rng, length, changing)
            items.append(Item(next(names), "", colours, start, cells, direction, offset, inks))
    paper = (rng.between(215, 255), rng.between(215, 255), rng.between(215, 255))
    return World(tuple(items), paper, rng.below(3))


def _path(rng: Rng, used: set[int], start: int, length: int, direction: str) -> tuple[tuple[int, int], ...]:
    """Cells for `length` seconds, inside the grid and free, which are then taken."""
    down, right = DIRECTIONS.get(direction, (0, 0))
    while True:
        row, column = rng.below(GRID), rng.below(GRID)
        cells = tuple((row + k * down, column + k * right) for k in range(length))
        tokens = {(start + k) * CELLS + r * GRID + c for k, (r, c) in enumerate(cells)}
        if all(0 <= part < GRID for cell in (cells[0], cells[-1]) for part in cell) and not tokens & used:
            used |= tokens
            return cells


def _colours(rng: Rng, length: int, changing: bool) -> tuple[tuple[str, ...], tuple[Colour, ...]]:
    names = rng.sample(list(COLOURS), 2)
    shades = [_shade(rng, COLOURS[name]) for name in names]
    first = rng.between(1, length - 1) if changing and length > 1 else length
    which: Sequence[int] = [0] * first + [1] * (length - first)
    return tuple(names[i] for i in which), tuple(shades[i] for i in which)


def _shade(rng: Rng, colour: Colour) -> Colour:
    red, green, blue = (max(0, min(255, part + rng.between(-18, 18))) for part in colour)
    return red, green, blue

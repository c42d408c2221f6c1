"""The four kinds of pages: drawing, question, and answer with its evidence."""

from dataclasses import dataclass

from tiny_vlm.canvas import GRID, Canvas, Colour
from tiny_vlm.glyphs import SHAPES
from tiny_vlm.rng import Rng
from tiny_vlm.wording import COLOURS, LETTERS, SLOTS, WORDS, ask

Piece = tuple[str, list[int]]
"""One answer token (as in the tokenizer, with a leading \u2581 where a word starts) and the cells that show it."""

KEYS = SHAPES + WORDS + LETTERS


@dataclass(frozen=True)
class Page:
    """A drawn page with everything that training may want to know about it.

    Attributes:
        pieces: the answer.
        asked: the words of the question that say which thing is meant.
        objects: what a caption has to name.
    """

    kind: str
    canvas: Canvas
    question: str
    pieces: list[Piece]
    asked: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        return "".join(text for text, _ in self.pieces).replace("\u2581", " ").strip()


def document(rng: Rng, most: int = 10) -> Page:
    """3 to `most` lines `WORD : 4821`; one number is asked for."""
    canvas = _blank(rng)
    lines = rng.between(3, most)
    spacing = rng.between(1, min(3, (GRID - 1) // (lines - 1)))
    row = rng.below(GRID - spacing * (lines - 1))
    gap = rng.below(3)
    margin = rng.below(GRID - 10 - gap)
    aligned = rng.chance(50)
    numbers = {}
    for i, word in enumerate(rng.sample(WORDS, lines)):
        key = KEYS.index(word)
        column = margin + rng.below(2)
        canvas.write(rng, word.upper(), row + i * spacing, column, key)
        colon = margin + 5 if aligned else column + len(word)
        canvas.write(rng, ":", row + i * spacing, colon)
        value = str(rng.between(1000, 9999))
        cells = canvas.write(rng, value, row + i * spacing, min(colon + 1 + gap, GRID - 4), key, indexed=True)
        numbers[word] = _digits(value, cells)
    word = rng.pick(list(numbers))
    return Page("document", canvas, ask(rng, "document", word), numbers[word], (word,))


def chart(rng: Rng, most: int = 6) -> Page:
    """3 to `most` bars with a letter below and a three-digit value above; one value is asked for."""
    canvas = _blank(rng)
    bars = rng.between(3, most)
    pitch = rng.between(4, min(6, GRID // bars))
    first = 1 + rng.below(GRID - 3 - pitch * (bars - 1) + 1)
    tallest = rng.between(3, 9)
    bottom = rng.between(tallest, GRID - 2)
    ink = rng.pick(list(COLOURS.values()))
    numbers = {}
    for i, letter in enumerate(rng.sample(LETTERS, bars)):
        key = KEYS.index(letter)
        column = first + i * pitch
        value = rng.between(100, 999)
        height = max(8, tallest * 14 * value // 1000)
        canvas.bar(_shade(rng, ink), column, bottom, height)
        canvas.write(rng, letter.upper(), bottom + 1, column, key)
        top = bottom - (height - 1) // 14 - 1
        cells = canvas.write(rng, str(value), top, column - 1, key, indexed=True)
        numbers[letter] = _digits(str(value), cells)
    letter = rng.pick(list(numbers))
    return Page("chart", canvas, ask(rng, "chart", letter), numbers[letter], (letter,))


def scene(rng: Rng, most: int = 6) -> Page:
    """2 to `most` coloured shapes with numbers under them; a colour, a number or a place is asked for."""
    canvas, things = _shapes(rng, rng.between(2, most), numbered=True)
    thing = rng.pick(things)
    topic = rng.pick(("colour", "number", "place"))
    if topic == "place":
        pieces = _named(thing)
        return Page("scene", canvas, ask(rng, topic, thing.slot), pieces, tuple(thing.slot.split()))
    key = thing.shape if topic == "colour" or rng.chance(50) else f"{thing.colour} {thing.shape}"
    if topic == "number":
        return Page("scene", canvas, ask(rng, topic, key), thing.number, (thing.shape,))
    pieces = [
        ("\u2581the", []),
        (f"\u2581{thing.shape}", []),
        ("\u2581is", []),
        (f"\u2581{thing.colour}", thing.cells),
    ]
    return Page("scene", canvas, ask(rng, topic, key), pieces, (thing.shape,))


def caption(rng: Rng, most: int = 5) -> Page:
    """2 to `most` coloured shapes, half of the time with numbers; all are to be named in reading order."""
    canvas, things = _shapes(rng, rng.between(2, most), numbered=rng.chance(50))
    pieces = []
    for thing in things:
        pieces += ([(",", [])] if pieces else []) + _named(thing)
    return Page("caption", canvas, ask(rng, "caption"), pieces, objects=tuple(f"{t.colour} {t.shape}" for t in things))


@dataclass(frozen=True)
class _Thing:
    shape: str
    colour: str
    slot: str
    cells: list[int]
    number: list[Piece]


def _shapes(rng: Rng, count: int, numbered: bool) -> tuple[Canvas, list[_Thing]]:
    """Draws `count` different shapes into a 3 x 3 arrangement of slots, in reading order."""
    canvas = _blank(rng)
    slots = sorted(rng.sample(range(9), count))
    things = []
    for order, (slot, shape) in enumerate(zip(slots, rng.sample(range(len(SHAPES)), count), strict=True)):
        colour = rng.below(len(COLOURS))
        row, column = slot // 3 * 8 + rng.below(6), slot % 3 * 8 + rng.below(7)
        ink = _shade(rng, list(COLOURS.values())[colour])
        cells = canvas.shape(rng, shape, ink, row, column, (colour, order, slot))
        number = []
        if numbered:
            value = str(rng.between(10, 99))
            number = _digits(value, canvas.write(rng, value, row + 2, column, shape, indexed=True))
        things.append(_Thing(SHAPES[shape], list(COLOURS)[colour], SLOTS[slot], cells, number))
    return canvas, things


def _named(thing: _Thing) -> list[Piece]:
    return [("\u2581a", []), (f"\u2581{thing.colour}", thing.cells), (f"\u2581{thing.shape}", thing.cells)]


def _digits(value: str, cells: list[int]) -> list[Piece]:
    """A lone word start comes first: that token shows nothing, so every digit is read after the prefill."""
    return [("\u2581", [])] + [(digit, [cell]) for digit, cell in zip(value, cells, strict=True)]


def _blank(rng: Rng) -> Canvas:
    paper = (rng.between(215, 255), rng.between(215, 255), rng.between(215, 255))
    ink = (rng.below(80), rng.below(80), rng.below(80))
    return Canvas(paper, ink, rng.below(3))


def _shade(rng: Rng, colour: Colour) -> Colour:
    red, green, blue = (max(0, min(255, part + rng.between(-18, 18))) for part in colour)
    return red, green, blue

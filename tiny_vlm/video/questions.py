"""Questions about a world in the four styles of Video-TT and as multiple choice, and answers with their evidence.

An answer starts with words that show nothing ("the number is"): the first token comes from the full prefill and is
right with any cache, so the evidence is needed after it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tiny_vlm.glyphs import SHAPES
from tiny_vlm.rng import Rng
from tiny_vlm.video.world import COLOURS, DIRECTIONS, GRID, SECONDS, Item, World, make_world

STYLES = ("primary", "paraphrase", "wrong_leading", "correct_leading", "multiple_choice")
LETTERS = "ABCD"
SPACE = "\u2581"

Piece = tuple[str, list[int]]
"""One answer token (with a leading \u2581 where a word starts) and the vision tokens that show it."""

WORDING = {
    "number": (
        "what number is shown at {key} seconds?",
        ("which number can you see when {key} seconds have passed?", "at {key} seconds, which number is in the video?"),
        "is it the number {x}?",
    ),
    "colour": (
        "what colour is the {shape} at {key} seconds?",
        (
            "at {key} seconds, which colour does the {shape} have?",
            "when {key} seconds have passed, how is the {shape} painted?",
        ),
        "is it {x}?",
    ),
    "when": (
        "when does the {key} appear?",
        (
            "at which second can you see the {key} for the first time?",
            "how many seconds have passed when the {key} comes?",
        ),
        "is it at {x}?",
    ),
    "after": (
        "what appears after the {key}?",
        ("which shape comes next, once the {key} is there?", "name the shape that follows the {key}."),
        "is it a {x}?",
    ),
    "before": (
        "what appears before the {key}?",
        ("which shape comes just ahead of the {key}?", "name the shape that is followed by the {key}."),
        "is it a {x}?",
    ),
    "motion": (
        "which way does the {key} move?",
        ("in which direction is the {key} going?", "where does the {key} go?"),
        "does it go {x}?",
    ),
    "describe": (
        "describe what happens in the video.",
        (
            "tell me all that you can see, in the order in which it appears.",
            "list everything that appears, with its time.",
        ),
        "is there a {x}?",
    ),
}  # fmt: skip
"""Primary question, paraphrases, and the lead: what it suggests is put in place of {x}."""


@dataclass(frozen=True)
class Asked:
    """A world with a question.

    Attributes:
        topic: a key of WORDING.
        options: four texts, in the order of the letters.
        correct: which of them is right.
        wrong: the option that a wrong lead suggests.
        pieces: the answer, token by token.
        keys: tokens of the question that say what to look for.
        answer: what a right answer has to contain.
    """

    world: World
    topic: str
    question: str
    paraphrase: str
    options: tuple[str, ...]
    correct: int
    wrong: int
    pieces: list[Piece]
    keys: tuple[str, ...]
    answer: str

    def lead(self, style: str) -> str:
        """The leading question of a style, which comes before the real one; "" if it has none."""
        if style not in ("wrong_leading", "correct_leading"):
            return ""
        suggested = self.options[self.wrong if style == "wrong_leading" else self.correct]
        return WORDING[self.topic][2].format(x=suggested.removeprefix("a "))

    def core(self, style: str) -> str:
        return self.paraphrase if style == "paraphrase" else self.question

    def choices(self, style: str) -> str:
        """The options as they follow the question, "" unless it is multiple choice."""
        lettered = (f"{letter}. {text}" for letter, text in zip(LETTERS, self.options, strict=True))
        return " ".join(lettered) if style == "multiple_choice" else ""

    def text(self, style: str) -> str:
        """The whole question in one of STYLES."""
        return " ".join(part for part in (self.lead(style), self.core(style), self.choices(style)) if part)

    def reply(self, style: str) -> list[Piece]:
        """What the model is trained to answer."""
        if style != "multiple_choice":
            return self.pieces
        shown = sorted({token for _, tokens in self.pieces for token in tokens})
        few = shown if self.topic != "describe" else []
        return [*_words("the answer is"), (SPACE + "\u24d0\u24d1\u24d2\u24d3"[self.correct], few)]

    def reply_text(self, style: str) -> str:
        if style == "multiple_choice":
            return f"the answer is {LETTERS[self.correct]}"
        return text_of(self.pieces)


def text_of(pieces: list[Piece]) -> str:
    return "".join(text for text, _ in pieces).replace(SPACE, " ").strip()


def moment(rng: Rng) -> Asked:
    """Look-up by time: a number or a colour at a second, or the second of an appearance."""
    world = make_world(rng, shapes=rng.between(2, 3), numbers=rng.between(2, 3), changing=True)
    topic = rng.pick(("number", "colour", "when"))
    if topic == "number":
        item = rng.pick(world.numbers)
        second = rng.between(item.start, item.end - 1)
        pieces = [*_words("the number is"), *_number(item.number, [item.token(second)])]
        others = [other.number for other in world.numbers if other is not item]
        others += [str(n) for n in rng.sample(range(10, 100), 90)]
        return _asked(rng, world, topic, pieces, item.number, others, key=str(second))
    item = rng.pick(world.shapes)
    if topic == "when":
        pieces = [*_words(f"the {item.shape} appears at"), *_number(str(item.start), [item.token(item.start)])]
        pieces += _words("seconds")
        times = [f"{s} seconds" for s in rng.sample(range(SECONDS), SECONDS)]
        return _asked(rng, world, topic, pieces, f"{item.start} seconds", times, key=item.shape)
    second = rng.between(item.start, item.end - 1)
    colour = item.colours[second - item.start]
    pieces = [*_words(f"the {item.shape} is"), (SPACE + colour, [item.token(second)])]
    others = [other for other in sorted(set(item.colours)) if other != colour] + rng.sample(list(COLOURS), len(COLOURS))
    return _asked(rng, world, topic, pieces, colour, others, key=str(second), shape=item.shape)


def order(rng: Rng) -> Asked:
    """What appears right after, or right before, a shape."""
    world = make_world(rng, shapes=rng.between(3, 5), numbers=0)
    topic = rng.pick(("after", "before"))
    place = rng.below(len(world.items) - 1)
    first, second = world.items[place : place + 2]
    known, found = (first, second) if topic == "after" else (second, first)
    evidence = [item.token(item.start) for item in (first, second)]
    pieces = [
        *_words(f"{topic} the {known.shape} comes a"),
        *((SPACE + word, evidence[1:]) for word in found.name.split()),
    ]
    others = [f"a {item.name}" for item in world.items if item not in (known, found)]
    others += [
        f"a {rng.pick(list(COLOURS))} {shape}" for shape in rng.sample(SHAPES, len(SHAPES)) if shape != known.shape
    ]
    return _asked(rng, world, topic, pieces, f"a {found.name}", others, key=known.shape)


def motion(rng: Rng) -> Asked:
    """Which way a shape moves, with others that move elsewhere."""
    while True:
        world = make_world(rng, shapes=rng.between(2, 4), numbers=rng.below(2), movers=3)
        movers = [item for item in world.shapes if item.direction]
        if movers:
            break
    item = rng.pick(movers)
    tokens = [item.token(second) for second in range(item.start + 1, item.end)]
    pieces = [*_words(f"the {item.shape} moves"), (SPACE + item.direction, tokens)]
    return _asked(rng, world, "motion", pieces, item.direction, rng.sample(list(DIRECTIONS), 4), key=item.shape)


def describe(rng: Rng) -> Asked:
    """Everything that appears, with time and place."""
    world = make_world(rng, shapes=rng.between(2, 5), numbers=rng.between(1, 2))
    pieces: list[Piece] = []
    for item in world.items:
        pieces += ([(",", [])] if pieces else []) + _event(item)
    item = rng.pick(world.shapes)
    return _asked(rng, world, "describe", pieces, f"a {item.name}", _absent(rng, world))


KINDS: dict[str, Callable[[Rng], Asked]] = {"moment": moment, "order": order, "motion": motion, "describe": describe}


def place_of(cell: tuple[int, int]) -> str:
    """Such as "top left", by thirds of the picture."""
    row, column = (part * 3 // GRID for part in cell)
    return f"{('top', 'middle', 'bottom')[row]} {('left', 'centre', 'right')[column]}"


def _event(item: Item) -> list[Piece]:
    """Such as "at 3 seconds a red star appears top left"."""
    shown = [item.token(item.start)]
    if item.number:
        name = [*_words("the number"), *_number(item.number, shown)]
    else:
        name = [*_words("a"), *((SPACE + word, shown) for word in item.name.split())]
    place = [(SPACE + word, shown) for word in place_of(item.cells[0]).split()]
    return [*_words("at"), *_number(str(item.start), shown), *_words("seconds"), *name, *_words("appears"), *place]


def _absent(rng: Rng, world: World) -> list[str]:
    """Things that are not in the world."""
    present = {item.name for item in world.items}
    names = [f"{colour} {shape}" for shape in SHAPES for colour in COLOURS]
    return [f"a {name}" for name in rng.sample(names, 3 + len(present)) if name not in present]


def _asked(
    rng: Rng, world: World, topic: str, pieces: list[Piece], right: str, others: list[str], **keys: str
) -> Asked:
    """Puts the options in random order; `others` are wrong ones, the most tempting first."""
    wrong: list[str] = []
    for text in others:
        if text != right and text not in wrong and not (topic == "number" and _alike(text, [right, *wrong])):
            wrong.append(text)
    options = rng.sample([right, *wrong[:3]], 4)
    primary, paraphrases, _ = WORDING[topic]
    return Asked(
        world=world,
        topic=topic,
        question=primary.format(**keys),
        paraphrase=rng.pick(paraphrases).format(**keys),
        options=tuple(options),
        correct=options.index(right),
        wrong=options.index(rng.pick(wrong[:3])),
        pieces=pieces,
        keys=tuple(SPACE + key if key.isalpha() else key for key in keys.values()),
        answer=text_of(pieces) if topic == "describe" else right.removeprefix("a "),
    )


def _alike(number: str, others: list[str]) -> bool:
    return any(number[0] == other[0] or number[1] == other[1] for other in others)


def _words(text: str) -> list[Piece]:
    return [(SPACE + word, []) for word in text.split()]


def _number(value: str, tokens: list[int]) -> list[Piece]:
    """A lone word start, then the digits one by one."""
    return [(SPACE, []), *((digit, tokens) for digit in value)]

"""The closed vocabulary of pictures and the many ways to ask."""

from tiny_vlm.rng import Rng

WORDS = (
    "tax", "date", "room", "code", "name", "bill", "cash", "rent", "fuel", "food", "milk", "tea", "cake", "bus", "car",
    "gas", "rice", "fish", "salt", "book", "desk", "lamp", "shoe", "coat", "gym", "pool", "park", "zoo", "bank", "visa",
    "wine", "egg",
)  # fmt: skip
LETTERS = ("b", "d", "f", "h", "k", "m", "n", "p", "r", "t", "w", "x")
COLOURS = {
    "red": (205, 25, 30),
    "green": (25, 145, 45),
    "blue": (30, 60, 205),
    "yellow": (225, 200, 20),
    "cyan": (20, 180, 195),
    "purple": (120, 30, 150),
    "pink": (240, 120, 185),
    "brown": (110, 65, 25),
}
SLOTS = (
    "top left", "top centre", "top right", "middle left", "middle centre", "middle right", "bottom left",
    "bottom centre", "bottom right",
)  # fmt: skip

SHORT = {
    "document": ("number next to {key}?", "value of {key}?", "what is {key}?"),
    "chart": ("value of bar {key}?", "how high is {key}?", "read bar {key}."),
    "colour": ("colour of the {key}?", "the {key} is?"),
    "number": ("number under the {key}?", "what is under the {key}?"),
    "place": ("what is {key}?", "shape in the {key}?"),
    "caption": ("describe the picture.", "list all shapes.", "what is shown?"),
}
FULL = {
    "document": (
        "what is the number next to the word {key}?",
        "which number is written on the line that starts with {key}?",
        "read the number that belongs to {key} in this list.",
    ),
    "chart": (
        "what is the value of the bar with the letter {key}?",
        "which number stands on top of the bar called {key} in this chart?",
        "please read the value written above bar {key}.",
    ),
    "colour": ("what is the colour of the {key} in the picture?", "which colour does the {key} have?"),
    "number": (
        "what is the number written under the {key} in the picture?",
        "which number can you see below the {key}?",
    ),
    "place": ("which shape can you see in the {key} of the picture?", "what is drawn in the {key} part?"),
    "caption": (
        "please describe all the shapes in this picture in reading order.",
        "list every shape that you can see with its colour, from the top left to the bottom right.",
    ),
}
BEFORE = (
    "hello, i hope you are well today.",
    "i found this old paper in a box under my bed, and my friend says that you are very good with pictures.",
    "please look carefully at the whole picture before you say anything, because it is easy to look at the wrong "
    "place.",
    "we were on a long train to the sea when a nice man gave this to us, and since then we have been asking ourselves "
    "the same thing again and again.",
    "my eyes are bad and i have lost my glasses, so i need your help with something small.",
)
AFTER = (
    "answer the question using a single word or phrase.",
    "give only the answer, and do not write anything else.",
    "take your time, and thank you very much for your help.",
    "be short.",
)
SYSTEM = (
    "a chat between a curious user and an artificial intelligence assistant. the assistant gives helpful, detailed, "
    "and polite answers to the user's questions.",
    "you are a helpful assistant.",
)


def ask(rng: Rng, topic: str, key: str = "") -> str:
    """One question about `topic`, of about 4 to about 60 words."""
    style = rng.below(6)
    core = rng.pick(SHORT[topic] if style < 2 else FULL[topic]).format(key=key)
    before = rng.pick(BEFORE) + " " if style in (3, 5) else ""
    after = " " + rng.pick(AFTER) if style in (4, 5) or (style == 1 and rng.chance(50)) else ""
    return before + core + after

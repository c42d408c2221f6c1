"""The offline judge: an answer is right if it contains an accepted answer, or states its number.

It knows no synonyms, so its scores are not comparable to those of a judge model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal

VERSION = "exact-1"
_TOKEN = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?![^\W_])|[^\W_]+(?:'[^\W_]+)*|[.,;:!?\n]")
_NUMBER_WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen twenty"""
_NUMBERS = _NUMBER_WORDS.split()
_SPELLING = str.maketrans({"\N{RIGHT SINGLE QUOTATION MARK}": "'", "\N{MINUS SIGN}": "-"})
_ARTICLES = {"a", "an", "the"}
_BREAKS = {"but", "rather", "instead"}
_NEGATIONS = {"not", "no", "never", "cannot", "without", "neither", "nor"}
_REACH = 3
_BREAK = ""


def is_right(answer: str, accepted: Iterable[str]) -> bool:
    """Whether an answer agrees with one of those accepted."""
    said = _words(answer)
    return any(_agrees(said, [word for word in _words(reference) if word != _BREAK]) for reference in accepted)


def _agrees(said: list[str], reference: list[str]) -> bool:
    numbers = {word for word in reference if _is_number(word)}
    if len(numbers) == 1 and len(reference) <= 2:  # a number, perhaps with its unit: no other may be named
        return {word for word in said if _is_number(word)} == numbers
    return bool(reference) and _contains(said, reference)


def _contains(said: list[str], reference: list[str]) -> bool:
    """The reference word by word, in a place that is not denied."""
    places = [place for place, word in enumerate(said) if word != _BREAK]
    words = [said[place] for place in places]
    size, denying = len(reference), any(map(_is_negation, reference))
    return any(
        words[start : start + size] == reference and (denying or not _is_denied(said, places[start]))
        for start in range(len(words) - size + 1)
    )


def _is_denied(said: list[str], place: int) -> bool:
    """A negation among the words before, in the same clause."""
    for word in reversed(said[max(0, place - _REACH) : place]):
        if word == _BREAK:
            return False
        if _is_negation(word):
            return True
    return False


def _is_negation(word: str) -> bool:
    return word in _NEGATIONS or word.endswith("n't")


def _is_number(word: str) -> bool:
    return word.lstrip("-")[:1].isdigit()


def _words(text: str) -> list[str]:
    """Lower case, without articles; numbers in one spelling, and `_BREAK` where a clause ends."""
    found = []
    for token in _TOKEN.findall(text.lower().translate(_SPELLING)):
        if token in _NUMBERS:
            found.append(str(_NUMBERS.index(token)))
        elif re.fullmatch(r"-?[\d,.]*\d", token, flags=re.ASCII):
            found.append(f"{Decimal(token.replace(',', '')).normalize():f}")
        elif token in _BREAKS or not token[0].isalnum():
            found.append(_BREAK)
        elif token not in _ARTICLES:
            found.append(token)
    return found

"""Errors meant for the person at the terminal: one line that says what is wrong and what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_LONGEST_WORD, _SHOWN = 300, 60


class ConfigError(ValueError):
    """A setting is wrong. The message is one line: the name, the value, what is allowed, the nearest match."""

    def __init__(self, message: str):
        super().__init__(one_line(message))


class UnsupportedError(RuntimeError):
    """The model, cache or call cannot be evicted from correctly, so nothing is evicted and nothing goes on."""


class ReleasedCodeError(Exception):
    """An ``official`` variant has reached a point where the released code raises."""


def one_line(message: str) -> str:
    """Whatever a value holds: line breaks and control characters as spaces, the start of what no one would read.

    Half a surrogate pair, such as a file name that is not UTF-8 has, is an escape.
    """
    message = message.encode(errors="backslashreplace").decode()
    line = "".join(character if character.isprintable() else " " for character in message)
    return re.sub(
        rf"[^\s=:]{{{_LONGEST_WORD},}}", lambda word: f"{word[0][:_SHOWN]}... ({len(word[0])} characters)", line
    )


def nearest(value: str, allowed: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest allowed value, or an empty string when none is close."""
    by_lower = {a.lower(): a for a in allowed}
    match = difflib.get_close_matches(value[:_SHOWN].lower(), by_lower, n=1, cutoff=0.5)
    return f" Did you mean {by_lower[match[0]]!r}?" if match else ""

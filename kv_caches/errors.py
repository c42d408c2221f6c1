"""Errors meant for the person at the terminal: one line that says what is wrong and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """A setting is wrong. The message is one line: the name, the value, what is allowed, the nearest match."""


class UnsupportedError(RuntimeError):
    """The model, cache or call cannot be evicted from correctly, so nothing is evicted and nothing goes on."""


class ReleasedCodeError(Exception):
    """An ``official`` variant has reached a point where the released code raises."""


def nearest(value: str, allowed: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest allowed value, or an empty string when none is close."""
    by_lower = {a.lower(): a for a in allowed}
    match = difflib.get_close_matches(value.lower(), by_lower, n=1, cutoff=0.5)
    return f" Did you mean {by_lower[match[0]]!r}?" if match else ""

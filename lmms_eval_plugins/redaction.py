"""Keys and tokens of the environment never reach a log, a record or a result: their values are cut out of every text.

lmms-eval logs the arguments of its tracker, HF_TOKEN among them; servers and libraries put keys into their messages.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

INSTEAD = "***"
_NAME = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|KEY)S?$", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"://[^/@\s:]*:([^/@\s]+)@")
_SHORTEST = 6
"""Shorter values, such as the `none` or `EMPTY` that a server of one's own is given, are words of the language too."""


def redacted(text: str, env: Mapping[str, str] = os.environ) -> str:
    """A text without the values of variables that are named as secrets are, and without passwords of addresses."""
    for secret in _secrets(env):
        text = text.replace(secret, INSTEAD)
    return text


def redacted_values(content: Any) -> Any:
    """The same of all texts in JSON-like content; keys and everything else stay."""
    if isinstance(content, str):
        return redacted(content)
    if isinstance(content, dict):
        return {key: redacted_values(value) for key, value in content.items()}
    return [redacted_values(value) for value in content] if isinstance(content, list | tuple) else content


def redact_output() -> None:
    """From now on in this process, for everything that is printed, logged or raised; once."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _Redacting):
            setattr(sys, name, _Redacting(stream))


@contextmanager
def redacted_output() -> Iterator[None]:
    """`redact_output` for a while."""
    before = sys.stdout, sys.stderr
    redact_output()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _secrets(env: Mapping[str, str]) -> list[str]:
    """Longest first, since one may be a part of another."""
    found = {value.strip() for name, value in env.items() if _NAME.search(name)}
    found |= {match[1] for value in env.values() for match in _IN_ADDRESS.finditer(value)}
    return sorted((secret for secret in found if len(secret) >= _SHORTEST), key=len, reverse=True)


class _Redacting:
    """A stream that writes texts without secrets, and is the stream itself in everything else."""

    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(redacted(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stream)

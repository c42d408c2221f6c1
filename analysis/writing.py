"""How analysis writes: whole files or none, under names that stay in their folder, cells that no program runs."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd

ODD_CHARACTERS = "backslashreplace"
"""What becomes of half a surrogate pair, such as a file name that is not UTF-8 has."""
_FORMULA = re.compile(r"[=+\-@\t\r].+", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_NOT_IN_NAMES = re.compile(r'[/\\:*?"<>|\x00-\x1f]')


def write_text(path: Path, text: str) -> None:
    """Writes a text file in UTF-8, through a temporary one beside it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8", errors=ODD_CHARACTERS)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def as_csv(frame: pd.DataFrame) -> str:
    """CSV whose text a spreadsheet shows as text: what begins as a formula does gets an apostrophe; numbers stay."""
    return frame.rename(columns=_as_text).map(_as_text).to_csv(index=False)


def file_name(text: str) -> str:
    """A model's name, or another text, as a part of a file name."""
    return _NOT_IN_NAMES.sub("-", text)


def print_everything() -> None:
    """From here on an odd character in a line is printed as an escape, where it would end the command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=ODD_CHARACTERS)


def _as_text(value: Any) -> Any:
    is_formula = isinstance(value, str) and _FORMULA.fullmatch(value) and not _NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value

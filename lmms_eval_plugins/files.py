"""How runs write: whole files or none, under names that stay in their folder, in text that every disk and log takes."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from lmms_eval_plugins.redaction import redacted_values

ODD_CHARACTERS = "backslashreplace"
"""What becomes of half a surrogate pair, such as a file name that is not UTF-8 has: an escape, which JSON knows too."""
_NOT_IN_NAMES = re.compile(r'[/\\%:*?"<>|\x00-\x1f]')
_LONGEST_NAME = 180
_TEMPORARY = re.compile(r"\..+\.json\.(?:(?P<host>.+)-)?(?P<pid>\d+)")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes under a temporary name, syncs and renames: a file that exists is complete, and has no secrets.

    What a killed process left behind in the folder goes away.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear(path.parent.absolute())
    temporary = path.with_name(f".{path.name}.{platform.node()}-{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8", errors=ODD_CHARACTERS) as file:
            json.dump(redacted_values(content), file, indent=2, ensure_ascii=False, default=str)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def file_name(text: str) -> str:
    """A task's name, or another text, as a part of a file name: itself where it can be, and never a way out."""
    name = _NOT_IN_NAMES.sub(lambda found: f"%{ord(found[0]):02X}", text)
    if len(name.encode(errors="surrogateescape")) <= _LONGEST_NAME:
        return name
    return f"{name[:40]}-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:16]}"


def result_file(folder: Path, task: str) -> Path:
    """Where a sweep keeps the result of a task."""
    return folder / f"result.{file_name(task)}.json"


def print_everything() -> None:
    """From here on an odd character in a line is printed as an escape, where it would end the run."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=ODD_CHARACTERS)


@cache
def _clear(folder: Path) -> None:
    """Removes what killed processes of this machine left behind, once per folder and process."""
    for path in folder.glob(".*.json.*"):
        found = _TEMPORARY.fullmatch(path.name)
        if found and found["host"] in (None, platform.node()) and not _runs(int(found["pid"])):
            path.unlink(missing_ok=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True

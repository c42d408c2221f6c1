"""A hash of what a request asks: its text, its generation arguments, and the content of its pictures and videos."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL.Image import Image

_ENDS = 1 << 20


def prompt_hash(context: str, gen_kwargs: dict[str, Any], content: Any, seed: int | None = None) -> str:
    """16 hex digits, the same on every machine.

    Args:
        context: the task's text.
        content: the task's messages (chat) or pictures (simple).
        seed: of the run, where answers are sampled.

    Raises:
        PromptError: a medium of a type whose content is not known here.
    """
    asked = [context, gen_kwargs] if seed is None else [context, gen_kwargs, seed]
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode())
    _feed(digest, content)
    return digest.hexdigest()[:16]


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, Image):
        digest.update(f"image {value.mode} {value.size}".encode() + value.tobytes())
    elif isinstance(value, dict):
        for name in sorted(value, key=str):
            digest.update(f"key {name}".encode())
            _feed(digest, value[name])
    elif isinstance(value, list | tuple):
        digest.update(f"list {len(value)}".encode())
        for item in value:
            _feed(digest, item)
    elif isinstance(value, np.ndarray):
        digest.update(f"array {value.dtype} {value.shape}".encode() + value.tobytes())
    elif isinstance(value, bytes):
        digest.update(b"bytes" + value)
    elif isinstance(value, str) and os.path.isabs(value) and os.path.isfile(value):
        _feed_file(digest, Path(value))
    elif isinstance(value, str | int | float | bool | None):
        digest.update(repr(value).encode())
    else:
        digest.update(f"{type(value).__module__}.{type(value).__qualname__}".encode())


def _feed_file(digest: Any, path: Path) -> None:
    """A video by its size and both ends: the folder it lies in differs between machines."""
    size = path.stat().st_size
    digest.update(f"file {size}".encode())
    with path.open("rb") as file:
        digest.update(file.read(_ENDS))
        if size > _ENDS:
            file.seek(max(_ENDS, size - _ENDS))
            digest.update(file.read())

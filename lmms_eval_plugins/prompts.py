"""A hash of what a request asks: its text, its generation arguments, and the content of its pictures and videos."""

from __future__ import annotations

import hashlib
import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL.Image import Image

from lmms_eval_plugins.errors import PromptError
from lmms_eval_plugins.media import local

_BLOCK, _ORIENTATION = 1 << 20, 0x0112
_TEXTS = {"text", "content", "role", "type"}
"""Keys of a message under which a string is no file, even if one is named like it."""


def prompt_hash(context: str, gen_kwargs: dict[str, Any], content: Any, seed: int | None = None) -> str:
    """16 hex digits, the same on every machine.

    Args:
        context: the task's text.
        content: the task's messages (chat) or pictures (simple).
        seed: of the run, where answers are sampled.

    Raises:
        PromptError: a medium whose content is not known, so that its answer could not be told from others'.
    """
    asked = [context, gen_kwargs] if seed is None else [context, gen_kwargs, seed]
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode())
    _feed(digest, content)
    return digest.hexdigest()[:16]


def _feed(digest: Any, value: Any, text: bool = False) -> None:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().float().numpy()
    if isinstance(value, Path | np.generic):
        value = str(value) if isinstance(value, Path) else value.item()
    if isinstance(value, Image):
        digest.update(f"image {value.mode} {value.size}".encode() + value.tobytes() + _beside_pixels(value))
    elif isinstance(value, dict):
        for name in sorted(value, key=str):
            digest.update(f"key {name}".encode())
            _feed(digest, value[name], text=name in _TEXTS)
    elif isinstance(value, list | tuple):
        digest.update(f"list {len(value)}".encode())
        for item in value:
            _feed(digest, item)
    elif isinstance(value, np.ndarray):
        digest.update(f"array {value.dtype} {value.shape}".encode() + value.tobytes())
    elif isinstance(value, bytes):
        digest.update(b"bytes" + value)
    elif isinstance(value, str) and not text and os.path.isfile(local(value)):
        digest.update(_file(local(value)))
    elif isinstance(value, str | int | float | bool | None):
        digest.update(repr(value).encode())
    else:
        raise PromptError(
            f"a {type(value).__module__}.{type(value).__qualname__} is no picture or video that can be read"
        )


def _beside_pixels(picture: Image) -> bytes:
    """What else a picture looks like: its palette, what of it is transparent, how a viewer would turn it."""
    seen = picture.getpalette(), picture.info.get("transparency"), picture.getexif().get(_ORIENTATION, 1)
    return b"" if seen == (None, None, 1) else repr(seen).encode()


def _file(path: str) -> bytes:
    """A file by its content, all of it: the name and the folder it lies in differ between machines."""
    found = os.stat(path)
    return _content(os.path.realpath(path), found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=1 << 16)
def _content(path: str, size: int, modified: int) -> bytes:
    digest = hashlib.sha256(f"file {size}".encode())
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.digest()

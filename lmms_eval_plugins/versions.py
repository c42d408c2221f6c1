"""Versions of the libraries that a run stands on."""

from __future__ import annotations

import importlib.metadata
import platform
from functools import cache

_DECIDING = ("torch", "torchvision", "transformers", "tokenizers", "pillow", "av", "qwen-vl-utils")
"""They compute prompts and answers. Another version may give another answer, so they are part of the fingerprint."""
_TOLD = ("lmms_eval", "accelerate")


@cache
def deciding() -> dict[str, str | None]:
    """By package, without the build (`+cu128`): the same for a login node without a GPU."""
    return {name: _version(name).split("+")[0] or None for name in _DECIDING}


@cache
def versions() -> dict[str, str]:
    """Everything that is worth telling, Python among it."""
    found = {name: _version(name) for name in (*_DECIDING, *_TOLD)}
    return {"python": platform.python_version()} | {name: version for name, version in found.items() if version}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""

"""Profile files: shares a method measured on other prompts beforehand. One file per model and ratio."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from .errors import ConfigError


def profile_file(path: str, retention: float) -> Path:
    """The file itself, or ``<retention>.json`` in a folder, e.g. ``0.05.json``.

    Raises:
        ConfigError: there is no such file.
    """
    file = Path(path)
    file = file / f"{retention:g}.json" if os.path.isdir(file) else file
    if not os.path.isfile(file):
        raise ConfigError(
            f"KV_PROFILE={path!r}: {file} does not exist; make it with "
            f"`python -m kv_caches.profile --retention {retention:g}`"
        )
    return file


def profile_digest(path: str, retention: float) -> str:
    """Hash of the profile's contents, so that another profile is another configuration."""
    return hashlib.sha256(_content(path, profile_file(path, retention))).hexdigest()


def _content(path: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"KV_PROFILE={path!r}: {file} cannot be read: {error.strerror}") from error


def read_profile(path: str, retention: float) -> tuple[float, ...]:
    """Share of the prompt every layer evicts.

    Raises:
        ConfigError: no such file, not a profile, or one made for another ratio.
    """
    file = profile_file(path, retention)
    content = _content(path, file)
    try:
        data = json.loads(content)
        evicted, made_for = tuple(float(share) for share in data["evicted"]), float(data["retention"])
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        raise ConfigError(f"KV_PROFILE={path!r}: {file} is not a profile of `python -m kv_caches.profile`") from None
    if not abs(made_for - retention) <= 1e-9:
        raise ConfigError(f"KV_PROFILE={path!r}: {file} was made for retention {made_for:g}, not {retention:g}")
    if not evicted or not all(0 <= share < 1 for share in evicted):
        raise ConfigError(f"KV_PROFILE={path!r}: {file} must hold one share in [0, 1) per layer")
    return evicted

"""Data sets that a generator makes, as folders on disk: made on first use, once, whoever asks at the same time.

A folder is named after a hash of its generator, so a changed generator never meets old samples.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path


def folder(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of a data set, filled by `make` if it is not there."""
    target = cache_dir() / name
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
        make(temporary)
        try:
            temporary.rename(target)
        except OSError:
            if not target.is_dir():
                raise
            shutil.rmtree(temporary)  # Another process was faster.
    return target


def cache_dir() -> Path:
    """Below the user's cache, or in the temporary folder where that cannot be written."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mini_vlm"
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / f"mini_vlm-{os.getuid()}"
    return home if os.access(home, os.W_OK) else Path(tempfile.gettempdir()) / f"mini_vlm-{os.getuid()}"


def version(layout: str, files: Iterable[Path]) -> str:
    """12 hex digits of everything that makes the samples.

    Args:
        layout: of the data set itself.
        files: that draw and word its samples.
    """
    digest = hashlib.sha256(layout.encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]

"""What Ctrl-C, and the SIGTERM that a scheduler sends, do: one line on what is kept, and the status a shell expects.

Nothing slow is imported here, so that it holds from the first moment on.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ANSWERS = "every answer so far is on disk, and the same command goes on from there"
VERDICTS = "every verdict so far is on disk, and the same command goes on from there"
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by SIGTERM"}
_PATIENCE = 5.0
"""Seconds in which further signals are the same one: a launcher sends its own after that of the terminal."""


class Stopped(SystemExit):
    """Ends the process with 128 and the signal's number, after its line was printed."""


class _Handler:
    def __init__(self, kept: str):
        self.kept, self.since = kept, 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.since:
            self.since = time.monotonic()
            if os.environ.get("RANK", "0") == "0":
                # Past `sys.stderr`, which the signal may have come into the middle of.
                os.write(2, f"error: {_WORDS[signal.Signals(number)]}; {self.kept}\n".encode())
            raise Stopped(128 + number)
        if time.monotonic() - self.since > _PATIENCE:  # something has swallowed the first
            os._exit(128 + number)


def stop_on_signals(kept: str = ANSWERS) -> dict[signal.Signals, object]:
    """From now on in this process; returns what held before. What the caller of the process has ignored stays so.

    Args:
        kept: what the line says is on disk.
    """
    handler, before = _Handler(kept), dict[signal.Signals, object]()
    if threading.current_thread() is not threading.main_thread():
        return before
    for number in _WORDS:
        found = signal.getsignal(number)
        if found not in (signal.SIG_IGN, None) and not isinstance(found, _Handler):
            before[number] = signal.signal(number, handler)
    return before


@contextmanager
def stopping_on_signals(kept: str = ANSWERS) -> Iterator[None]:
    """`stop_on_signals` for a while."""
    before = stop_on_signals(kept)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

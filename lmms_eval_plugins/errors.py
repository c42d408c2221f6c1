"""How a run ends early: one line on standard error and exit status 1.

lmms-eval prints a traceback for every `Exception` and then exits with status 0, so a run that cannot go on raises
`SystemExit`, which passes through.
"""

import atexit
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kv_caches import ConfigError, UnsupportedError
from kv_caches.errors import one_line
from lmms_eval_plugins import launcher
from lmms_eval_plugins.redaction import redacted

_SECONDS_FOR_THE_FIRST_PROCESS = 3


class RunStopped(SystemExit):
    """Ends the process with status 1 after printing `message`.

    All processes of a run meet the same message, so only the first prints it, unless it is about one `process`.
    """

    def __init__(self, message: str, process: bool = False):
        super().__init__(1)
        self.message = message = "\n".join(map(one_line, redacted(message).split("\n")))
        rank = launcher.rank()
        if rank == 0 or process:
            print(f"error: {message}" + (f" (process {rank})" if rank else ""), file=sys.stderr, flush=True)
        else:
            # The launcher ends all processes as soon as one ends: the first one has to print before.
            time.sleep(_SECONDS_FOR_THE_FIRST_PROCESS)


class SamplesFailed(RunStopped):
    """A run is over and some of its samples have no answer. All processes raise it together."""


_failed: list[bool] = []


def fail_at_exit() -> None:
    """What is being done is done to its end, and then the process fails; see `keep_status`."""
    _failed.append(True)


def keep_status() -> None:
    """From here on this process ends with status 1 if `fail_at_exit` was called, though lmms-eval ends it with 0.

    To be called early: what is registered first runs last, and nothing runs after this.
    """
    atexit.register(_exit)


def _exit() -> None:
    if _failed:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def in_one_line(error: BaseException) -> str:
    """What went wrong, from the exception behind a library's repeated attempts; its class if it says nothing."""
    attempt = getattr(error, "last_attempt", None)
    cause = attempt.exception() if attempt is not None else None
    if cause is not None:
        return in_one_line(cause)
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


class PromptError(ValueError):
    """A prompt that cannot be answered; its sample fails."""


@contextmanager
def stop_on_config_error() -> Iterator[None]:
    """Turns a setting that is wrong, or a model that cannot be evicted from, into `RunStopped`."""
    try:
        yield
    except (ConfigError, UnsupportedError) as error:
        raise RunStopped(str(error)) from error

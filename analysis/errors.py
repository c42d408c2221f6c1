"""What goes wrong with a results folder, in one line each."""

from __future__ import annotations

import sys
from collections.abc import Callable

from .writing import print_everything


class ResultsError(ValueError):
    """A results folder cannot be read as it stands; the message names the file and says what to do."""


def told(command: Callable[[], int]) -> int:
    """Run a command line's work; a `ResultsError`, or a file that cannot be opened, is one line and status 2."""
    print_everything()
    try:
        return command()
    except ResultsError as error:
        reason = str(error)
    except OSError as error:
        if error.filename is None:
            raise
        reason = f"{error.filename}: {error.strerror}"
    print(f"error: {' '.join(reason.split())}", file=sys.stderr)
    return 2

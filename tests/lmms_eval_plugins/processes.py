"""Command lines in processes forked from this one, which has imported already what takes them seconds each."""

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from accelerate.state import AcceleratorState
from loguru import logger

from .grid import forked


class Done(NamedTuple):
    """What is left of the processes: the worst status, and what they wrote."""

    status: int
    output: str
    errors: str

    @property
    def stopped(self) -> list[str]:
        """The lines that say why they could not go on."""
        return [line for line in self.errors.splitlines() if line.startswith("error: ")]


def run(main: Callable[[list[str]], int], argv: list[str], env: dict[str, str], folder: Path, count: int = 1) -> Done:
    """Runs the `main` of a module in a folder, in `count` processes that find each other as under a launcher."""
    out, err = folder / ".stdout", folder / ".stderr"
    for path in (out, err):
        path.write_text("")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def action(rank: int) -> None:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(env | (_world(rank, count, port) if count > 1 else {}))
        _write_to(out, err)
        AcceleratorState._reset_state(reset_partial_state=True)
        raise SystemExit(main(argv))

    children = [forked(lambda rank=rank: action(rank)) for rank in range(count)]
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return Done(max(statuses, key=abs), out.read_text(), err.read_text())


def _world(rank: int, count: int, port: int) -> dict[str, str]:
    known = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_PORT": port}
    return {name: str(value) for name, value in known.items()} | {"MASTER_ADDR": "127.0.0.1"}


def _write_to(out: Path, err: Path) -> None:
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    logger.remove()

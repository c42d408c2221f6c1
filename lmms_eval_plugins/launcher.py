"""What a launcher (`accelerate launch`, `torchrun`) says about the processes of a run, in variables of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from kv_caches import ConfigError
from kv_caches.values import whole

_DEFAULTS = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
_LEAST = {"WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": 1}
_PAIRS = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))


def count(name: str, env: Mapping[str, str] = os.environ) -> int:
    """One of RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE.

    Raises:
        ConfigError: it is set to something else than a number of that kind.
    """
    meaning = "; a launcher sets it: unset it to run one process"
    return whole(name, env.get(name, str(_DEFAULTS.get(name, 1))), _LEAST.get(name, 0), 65535, meaning)


def rank(env: Mapping[str, str] = os.environ, name: str = "RANK") -> int:
    """RANK, or LOCAL_RANK; 0 where it is no number, which `problems` says."""
    try:
        return count(name, env)
    except ConfigError:
        return 0


def problems(env: Mapping[str, str] = os.environ) -> Iterator[str]:
    """A line for everything with which no process could find the others."""
    wrong = set()
    for name in (*_DEFAULTS, "MASTER_PORT"):
        try:
            count(name, env)
        except ConfigError as error:
            wrong.add(name)
            yield str(error)
    for own, of in _PAIRS:
        if not wrong & {own, of} and own in env and of in env and count(own, env) >= count(of, env):
            yield f"{own}={env[own]}: there are {of}={env[of]} processes, counted from 0; unset both to run one process"

"""What several runs in one process share: loaded weights, hashes of prompts, and which samples failed already.

lmms-eval makes a wrapper per run. Alone, each has a session of its own; `python -m lmms_eval_plugins.sweep` scores all
configurations in one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kv_caches import KVConfig
from lmms_eval_plugins.store import Key


@dataclass
class Session:
    """State of one process.

    Attributes:
        configs: the sweep's configurations, if the process was started for one; None leaves it to `KV_SWEEP`.
        loaded: what was loaded with which settings.
        hashes: (task, document, arguments) to the hash of the prompt.
        failed: reasons, by fingerprint and key: not tried again in this process.
        used: by fingerprint, the keys of the answers that were asked for, gathered over processes when a run ends.
        figures: by fingerprint, what `figures.by_task` says of a run that has ended; of the first process.
        records_missing: of a run, records of answers that it scored are not in its folder; of the first process.
        reported: what the runs have in common was printed.
        said: lines that were printed and need no repeating.
    """

    configs: list[KVConfig] | None = None
    loaded: tuple[Any, dict[str, Any]] | None = None
    hashes: dict[tuple[Any, ...], str] = field(default_factory=dict)
    failed: dict[tuple[str, Key], str] = field(default_factory=dict)
    used: dict[str, set[Key]] = field(default_factory=dict)
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    records_missing: bool = False
    reported: bool = False
    said: set[str] = field(default_factory=set)


_running: list[Session] = []


def current() -> Session:
    """The session of this process, or a new one."""
    return _running[-1] if _running else Session()


@contextmanager
def started(configs: list[KVConfig]) -> Iterator[Session]:
    """One session for every wrapper made inside."""
    _running.append(Session(configs))
    try:
        yield _running[-1]
    finally:
        _running.pop()

"""Recorded decode steps without a card: a replay runs the step again on the same storage."""

from __future__ import annotations

import pytest

from kv_caches import graphs


def replay_by_running(monkeypatch: pytest.MonkeyPatch, room: int = graphs.ROOM) -> None:
    """Let `attach(..., graph=True)` work on a CPU, with steps recorded anew every ``room`` tokens."""

    def record(step):
        output = step()
        return output, lambda: output.last_hidden_state.copy_(step().last_hidden_state)

    monkeypatch.setattr(graphs, "check", lambda *_: None)
    monkeypatch.setattr(graphs, "record", record)
    monkeypatch.setattr(graphs, "ROOM", room)

"""What became of one request in one configuration, and the record that is kept of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kv_caches.errors import one_line
from kv_caches.records import entries_of_answer
from lmms_eval_plugins import decoding
from lmms_eval_plugins.redaction import redacted
from lmms_eval_plugins.store import Key


@dataclass
class Outcome:
    """Attributes:
    answer: None if the sample failed.
    seconds: this answer's part of the time its batch took.
    shared: the prefill and the decoding steps in `seconds` were shared with other configurations.
    eviction: proof of eviction; None for stock.
    error: why it failed.
    seed: of the run, where the answer was sampled.
    """

    answer: decoding.Answer | None = None
    seconds: float = 0.0
    shared: bool = False
    eviction: dict[str, Any] | None = None
    error: str | None = None
    seed: int | None = None


def failure(error: BaseException) -> str:
    """The reason in one line, without secrets."""
    return one_line(redacted(f"{type(error).__name__}: {error}"))


def record(key: Key, outcome: Outcome, wrapper: str) -> dict[str, Any]:
    """The line of the response store, but for what the store adds itself."""
    answer = outcome.answer
    return {
        "task": key.task,
        "doc_id": key.doc_id,
        "repeat": key.repeat,
        "prompt_hash": key.prompt_hash,
        "status": "ok" if answer else "failed",
        "error": outcome.error,
        "answer": answer.text if answer else None,
        "raw_answer": answer.raw if answer else None,
        "answer_tokens": answer.tokens if answer else None,
        "generated_tokens": answer.generated if answer else None,
        "stop_reason": answer.stop_reason if answer else None,
        "seconds": round(outcome.seconds, 4),
        "seed": outcome.seed,
        "timing": "shared" if outcome.shared else "own",
        "wrapper": wrapper,
        "eviction": outcome.eviction and _compact(outcome.eviction, answer.generated if answer else 1),
    }


def _compact(proof: dict[str, Any], generated: int) -> dict[str, Any]:
    """The proof with the cache's size per step in short."""
    steps = proof["entries_per_step"]
    rest = {name: value for name, value in proof.items() if name != "entries_per_step"}
    return rest | {"cache_entries": entries_of_answer(steps, generated)}

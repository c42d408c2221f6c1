"""What a sweep costs, in one run on the embedded model: a full-cache run is 1.

Prints the cost of the whole grid decoded as ragged batches, of the grid decoded in turn, and where the time goes.
Weights are loaded and warmed up beforehand, so only answering counts. Run it on a quiet machine:

    python -m benchmarks.sweep --limit 32
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import contextmanager
from typing import Any

from lmms_eval.api.instance import Instance

from kv_caches.statistics import PrefillStats
from lmms_eval_plugins.models.llava_hf import LlavaHfChat
from lmms_eval_plugins.sweeps import load_sweep
from tiny_vlm import MODEL_DIR
from tiny_vlm.data import KINDS, make_samples

LIMITS = {"caption": 48}
DEFAULT_LIMIT = 16
_NEVER = 1 << 30  # an end token that is not in the vocabulary


class Questions:
    """Samples of all embedded tasks as lmms-eval hands them to a wrapper."""

    def __init__(self, limit: int, tokens: int | None):
        self.docs = {kind: make_samples(kind, "test", limit) for kind in KINDS}
        self.tokens = tokens

    def doc_to_messages(self, doc: Any) -> list[dict[str, Any]]:
        content = [{"type": "image", "url": doc.image.convert("RGB")}, {"type": "text", "text": doc.question}]
        return [{"role": "user", "content": content}]

    def requests(self) -> list[Instance]:
        made = []
        for kind, docs in self.docs.items():
            limit = self.tokens or LIMITS.get(kind, DEFAULT_LIMIT)
            for i, doc in enumerate(docs):
                kwargs = {"max_new_tokens": limit, "temperature": 0, "do_sample": False}
                arguments = (doc.question, self.doc_to_messages, kwargs, i, kind, "test")
                made.append(
                    Instance("generate_until", arguments, idx=0, metadata={"task": kind, "doc_id": i, "repeats": 1})
                )
        return made


@contextmanager
def _environment(**variables: str):
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def answer(questions: Questions, batch: int, **variables: str) -> tuple[float, dict[str, float]]:
    """Seconds to answer everything from an empty store, and seconds by phase of the shared prefills."""
    with tempfile.TemporaryDirectory() as folder, _environment(KV_RECORDS_DIR=folder, **variables):
        model = LlavaHfChat(pretrained=str(MODEL_DIR), device_map="cpu", batch_size=batch)
        model.task_dict = {kind: {"test": docs} for kind, docs in questions.docs.items()}
        model._ready()
        if questions.tokens:
            model._eos = frozenset({_NEVER})
        started = time.perf_counter()
        model.generate_until(questions.requests())
        seconds = time.perf_counter() - started
        for run in model._runs.values():
            run.store.close()
    return seconds, model.clock


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=int, default=16, help="samples of each of the four tasks")
    parser.add_argument("--batch", type=int, default=8, help="samples per prefill")
    parser.add_argument("--sweep", default="paper")
    parser.add_argument("--tokens", type=int, help="every answer gets so many tokens, whatever the model says")
    parser.add_argument("--skip-in-turn", action="store_true")
    options = parser.parse_args()
    questions, grid = Questions(options.limit, options.tokens), {"KV_CACHE_TYPE": "none", "KV_SWEEP": options.sweep}
    configs = len(load_sweep(options.sweep))
    answer(Questions(2, 4), 2, KV_CACHE_TYPE="none")  # warm up
    full, _ = answer(questions, options.batch, KV_CACHE_TYPE="none")
    print(f"full cache, one run          {full:7.1f} s   1.00")
    spent: dict[str, float] = {}
    with _timed_statistics(spent):
        ragged, clock = answer(questions, options.batch, **grid)
    print(f"{configs} configurations, ragged   {ragged:7.1f} s  {ragged / full:5.2f}")
    clock |= {"prefill": clock["prefill"] - spent.get("statistics", 0.0), **spent}
    for phase, seconds in clock.items():
        print(f"    {phase:24} {seconds:7.1f} s  {seconds / full:5.2f}")
    print(f"    {'prompts, records, rest':24} {ragged - sum(clock.values()):7.1f} s")
    if not options.skip_in_turn:
        in_turn, _ = answer(questions, 1, **grid, KV_DECODE_BATCH="1")
        print(f"{configs} configurations, in turn  {in_turn:7.1f} s  {in_turn / full:5.2f}")


@contextmanager
def _timed_statistics(spent: dict[str, float]):
    collect = PrefillStats.collect

    def timed(self: Any, *args: Any) -> None:
        started = time.perf_counter()
        collect(self, *args)
        spent["statistics"] = spent.get("statistics", 0.0) + time.perf_counter() - started

    PrefillStats.collect = timed
    try:
        yield
    finally:
        PrefillStats.collect = collect


if __name__ == "__main__":
    main()

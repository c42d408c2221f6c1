"""What a sweep costs, in one run on the embedded model: a full-cache run is 1.

Prints the cost of the whole grid decoded as ragged batches, of the grid decoded in turn, where the time goes, and the
memory of all KV caches together. Weights are loaded and warmed up beforehand, so only answering counts. Run it on a
quiet machine:

    python -m benchmarks.sweep --limit 32
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest import mock

from lmms_eval.api.instance import Instance

from benchmarks.caches import CacheMeter
from kv_caches.statistics import PrefillStats
from lmms_eval_plugins.models.llava_hf import LlavaHfChat
from lmms_eval_plugins.store import Store
from lmms_eval_plugins.sweeps import load_sweep
from tiny_vlm import MODEL_DIR
from tiny_vlm.data import KINDS, make_samples

LIMITS = {"caption": 48}
DEFAULT_LIMIT = 16
_NEVER = 1 << 30  # an end token that is not in the vocabulary


class Questions:
    """Samples of all embedded tasks as lmms-eval hands them to a wrapper."""

    instances = None

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
def _environment(**variables: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@dataclass
class Cost:
    """Of answering everything once.

    Attributes:
        seconds: all of it. cpu: seconds of processor time, which other programs on the machine disturb less.
        phases: seconds by what was done, in turn; the rest is reading and hashing prompts.
        meter: caches of the shared prefills; stock layers of the full cache are not seen.
    """

    seconds: float
    cpu: float
    phases: dict[str, float]
    meter: CacheMeter


def answer(questions: Questions, batch: int, **variables: str) -> Cost:
    """Answers everything from an empty store."""
    spent: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, _environment(KV_RECORDS_DIR=folder, **variables):
        model = LlavaHfChat(pretrained=str(MODEL_DIR), device_map="cpu", batch_size=batch)
        model.task_dict = {kind: {"test": docs} for kind, docs in questions.docs.items()}
        model._ready()
        if questions.tokens:
            model._eos = frozenset({_NEVER})
        with _timed(_parts(model), spent), CacheMeter() as meter:
            started, cpu = time.perf_counter(), time.process_time()
            model.generate_until(questions.requests())
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        for run in model._runs.values():
            run.store.close()
    return Cost(seconds, cpu, _phases(spent, model.clock), meter)


def _parts(model: Any) -> dict[str, tuple[Any, str]]:
    """Phase by phase, the function that does it."""
    return {
        "processor": (model, "build_inputs"),
        "vision": (model.model.model, "get_image_features"),
        "statistics": (PrefillStats, "collect"),
        "records": (Store, "append"),
    }


@contextmanager
def _timed(parts: dict[str, tuple[Any, str]], spent: dict[str, float]) -> Iterator[None]:
    with ExitStack() as stack:
        for phase, (owner, name) in parts.items():
            stack.enter_context(mock.patch.object(owner, name, _counted(getattr(owner, name), phase, spent)))
        yield


def _counted(function: Any, phase: str, spent: dict[str, float]) -> Any:
    @wraps(function)  # generate reads signatures
    def timed(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[phase] = spent.get(phase, 0.0) + time.perf_counter() - started

    return timed


def _phases(spent: dict[str, float], clock: dict[str, float]) -> dict[str, float]:
    """A shared prefill's clock covers processor, vision tower and statistics too."""
    if not clock:
        return {}
    inside = {name: spent.get(name, 0.0) for name in ("processor", "vision", "statistics")}
    prefill = clock["prefill"] - sum(inside.values())
    forks = {name: clock.get(name, 0.0) for name in ("forks", "decode")}
    first = {"processor": inside["processor"], "vision": inside["vision"], "prefill": prefill}
    return first | {"statistics": inside["statistics"]} | forks | {"records": spent.get("records", 0.0)}


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
    full = answer(questions, options.batch, KV_CACHE_TYPE="none")
    _show("full cache, one run", full, full)
    _show(f"{configs} configurations, ragged", answer(questions, options.batch, **grid), full)
    if not options.skip_in_turn:
        _show(f"{configs} configurations, in turn", answer(questions, 1, **grid, KV_DECODE_BATCH="1"), full)


def _show(title: str, cost: Cost, full: Cost) -> None:
    """Seconds, and how many times the full-cache run's they are."""
    print(f"{title:28} {cost.seconds:7.1f} s  {cost.seconds / full.seconds:5.2f}  (cpu {cost.cpu / full.cpu:.2f})")
    if not cost.phases:
        return
    rest = {"prompts and the rest": cost.seconds - sum(cost.phases.values())}
    for phase, seconds in (cost.phases | rest).items():
        print(f"    {phase:24} {seconds:7.1f} s  {seconds / full.seconds:5.2f}")
    most, prompt = cost.meter.peak / 2**20, cost.meter.prompt / 2**20
    print(f"    KV caches at their peak: {most:.1f} MiB, of which the prompts of one batch: {prompt:.1f} MiB")


if __name__ == "__main__":
    main()

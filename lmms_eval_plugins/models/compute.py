"""Computes the answers a store lacks: from shared prefills where it can, else one configuration after the other."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from kv_caches import KVConfig, attach
from lmms_eval_plugins import decoding, kept
from lmms_eval_plugins.models.finite import FiniteLogits
from lmms_eval_plugins.models.grid import GridPass, obstacle
from lmms_eval_plugins.models.outcome import Outcome, failure, record
from lmms_eval_plugins.models.request import Request, batches
from lmms_eval_plugins.progress import Progress
from lmms_eval_plugins.settings import RunSettings
from lmms_eval_plugins.store import Key, Store

if TYPE_CHECKING:
    from lmms_eval_plugins.models.base import EvictionWrapper


class Run(NamedTuple):
    """One configuration with its store."""

    settings: RunSettings
    store: Store


@dataclass
class Asked:
    """One request, and the configurations whose answers to it are missing."""

    request: Request
    key: Key
    missing: list[KVConfig | None] = field(default_factory=list)


@dataclass
class Computation:
    """Answers requests with a wrapper's model and stores each answer as soon as it exists.

    Attributes:
        runs: by configuration.
        seconds: spent on each configuration.
        clock: spent on each phase of shared prefills.
    """

    host: EvictionWrapper
    runs: dict[KVConfig | None, Run]
    progress: Progress
    seconds: dict[KVConfig | None, float] = field(default_factory=dict)
    clock: dict[str, float] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)
    _prompts: dict[Key, str] = field(default_factory=dict)

    def run(self, asked: Sequence[Asked]) -> None:
        """Computes everything that is missing."""
        by_index = {one.request.index: one for one in asked if one.missing}
        for batch in batches([one.request for one in by_index.values()], self.host.batch_size):
            plan, items = self.host.plan(batch[0]), [by_index[request.index] for request in batch]
            for together in [[item] for item in items] if plan.alone else [items]:
                self._answer(together, plan)

    def _answer(self, items: list[Asked], plan: decoding.Decoding) -> None:
        """All configurations of one batch."""
        self._from_shared_prefill(items, plan)
        for config in self.runs:
            mine = [item for item in items if config in item.missing]
            if mine:
                outcomes = self._alone(mine, config, plan)
                self._note([(item, config, outcome) for item, outcome in zip(mine, outcomes, strict=True)])

    def _from_shared_prefill(self, items: list[Asked], plan: decoding.Decoding) -> None:
        wanted = [[c for c in item.missing if c is not None and c.build().shares_prefill] for item in items]
        if max(map(len, wanted)) < 2:
            return
        reason = obstacle(plan.arguments, self.host.model.generation_config)
        if reason is not None:
            self._say(f"{reason}: this cannot share a prefill, so each configuration runs on its own")
            return
        chosen = [(item, configs) for item, configs in zip(items, wanted, strict=True) if configs]
        self._shared([item for item, _ in chosen], [configs for _, configs in chosen], plan)

    def _say(self, text: str) -> None:
        if text not in self._said and self.host.rank == 0:
            self.progress.note(f"[kv] {text}")
        self._said.add(text)

    def _shared(self, items: list[Asked], wanted: list[list[KVConfig]], plan: decoding.Decoding) -> None:
        """If the prefill of a batch fails, each of its samples is tried alone."""
        host = self.host
        most = host.settings.decode_batch
        grid = GridPass(host.model, host.tokenizer, plan, most, self.clock, host.record_kept)
        try:
            for outcomes in grid.answers(lambda: self._inputs(items), wanted):
                self._note([(items[sample], config, outcome) for (sample, config), outcome in outcomes.items()])
            return
        except Exception as error:
            reason = failure(error)
        _free_memory()
        if len(items) == 1:
            self._note([(items[0], config, Outcome(error=reason, shared=True)) for config in wanted[0]])
            return
        for item, configs in zip(items, wanted, strict=True):
            self._shared([item], [configs], plan)

    def _alone(self, items: list[Asked], config: KVConfig | None, plan: decoding.Decoding) -> list[Outcome]:
        """If a batch fails, each of its samples is tried alone, so that only the broken ones fail."""
        started = time.perf_counter()
        try:
            return self._generate(items, config, plan)
        except Exception as error:
            failed = Outcome(error=failure(error), seconds=time.perf_counter() - started)
        # Outside the handler: the traceback holds on to the memory of the failed batch.
        _free_memory()
        if len(items) == 1:
            return [failed]
        return [outcome for item in items for outcome in self._alone([item], config, plan)]

    def _generate(self, items: list[Asked], config: KVConfig | None, plan: decoding.Decoding) -> list[Outcome]:
        host = self.host
        inputs = self._inputs(items)
        length = inputs["input_ids"].shape[1]
        rooms, started, finite = plan.rooms(inputs["attention_mask"]), time.perf_counter(), FiniteLogits(length)
        attached = attach(host.model, config) if config else nullcontext()
        with attached as attachment, _drawn_for(items, plan, host.device), torch.inference_mode():
            if attachment is not None:
                attachment.record_kept = host.record_kept
            output = host.model.generate(
                **inputs,
                **plan.arguments | {"max_new_tokens": max(rooms)},
                use_cache=host.settings.options["use_cache"],
                stopping_criteria=plan.criteria(host.tokenizer, length),
                logits_processor=finite.as_list,
            )
            evictions = _evictions(attachment, len(items))
        rows = output[:, length:].tolist()
        seconds = (time.perf_counter() - started) / len(items)
        answers = [decoding.read_answer(row, plan, host.tokenizer, room) for row, room in zip(rows, rooms, strict=True)]
        reasons = finite.reasons([answer.generated for answer in answers])
        seed = host.seed if plan.alone else None
        return [
            Outcome(answer, seconds, eviction=eviction, seed=seed)
            if reason is None
            else Outcome(seconds=seconds, error=reason)
            for answer, eviction, reason in zip(answers, evictions, reasons, strict=True)
        ]

    def _inputs(self, items: list[Asked]) -> Any:
        """Processor output of a batch; what is to be drawn of it is written beside the records."""
        host = self.host
        batch = host.inputs([item.request for item in items])
        if host.record_kept:
            keys = [item.key for item in items]
            names = [str(key.prompt_hash) for key in keys]
            written = kept.write_prompts(batch, names, host.processor, host.model.config)
            self._prompts |= dict(zip(keys, written, strict=True))
        return batch

    def _note(self, done: list[tuple[Asked, KVConfig | None, Outcome]]) -> None:
        """Stores answers: on disk when this returns."""
        lines: dict[KVConfig | None, list[dict[str, Any]]] = {}
        broken: dict[tuple[str, Any, str], int] = {}
        for item, config, outcome in done:
            answer = outcome.answer
            if answer is not None:
                text = self.host.read_text(answer.text)
                raw = None if text == answer.text else answer.text
                outcome.answer = replace(answer, text=text, raw=raw)
                if outcome.eviction and item.key in self._prompts:
                    outcome.eviction["prompt"] = self._prompts[item.key]
            else:
                error = outcome.error or "no reason known"
                self.host.session.failed[self.runs[config].settings.fingerprint, item.key] = error
                sample = (item.key.task, item.key.doc_id, error)
                broken[sample] = broken.get(sample, 0) + 1
            lines.setdefault(config, []).append(record(item.key, outcome, self.host.settings.wrapper))
            self.seconds[config] = self.seconds.get(config, 0.0) + outcome.seconds
            item.missing.remove(config)
        for config, records in lines.items():
            self.runs[config].store.append(records)
        for (task, doc_id, error), count in broken.items():
            where = f" in {count} configurations" if count > 1 else ""
            self.progress.note(f"[kv] {task}/{doc_id} failed{where}: {error}")
        self.progress.advance(len(done))


def _evictions(attachment: Any, samples: int) -> Sequence[dict[str, Any] | None]:
    """The proof of eviction of each sample; with beams the first beam's, which all share the prefill."""
    if attachment is None:
        return [None] * samples
    taken = attachment.take_records()
    if not taken or len(taken) % samples:
        raise RuntimeError(f"{len(taken)} eviction records for {samples} samples: the prefill was not seen")
    return taken[:: len(taken) // samples]


@contextmanager
def _drawn_for(items: list[Asked], plan: decoding.Decoding, device: torch.device) -> Iterator[None]:
    """What a sampled answer draws follows from the run's seed (in the prompt's hash) and the repeat, nothing else."""
    if not plan.alone:
        yield
        return
    (key,) = [item.key for item in items]
    seed = hashlib.sha256(f"{key.prompt_hash} {key.repeat}".encode()).digest()[:7]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(int.from_bytes(seed, "big"))
        yield


def _free_memory() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

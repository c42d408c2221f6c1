"""Many configurations from one prefill: a batch of samples is encoded once, its forks decode as ragged batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from torch import Tensor

from kv_caches import KVConfig, kernels
from kv_caches.cache import ROOM
from kv_caches.shared import SharedPrefill
from lmms_eval_plugins import decoding, generation
from lmms_eval_plugins.models.finite import FiniteLogits
from lmms_eval_plugins.models.outcome import Outcome, failure

Row = tuple[int, KVConfig]
_MOST_ROWS = 512
_PART_OF_FREE_MEMORY = 0.5
_SPREAD = 2.0
"""Rows decode together while the largest budget is at most this many times the smallest: all are padded to it."""


def obstacle(arguments: dict[str, Any], generation_config: Any) -> str | None:
    """Why this decoding cannot share a prefill, or None: it has to be greedy, and its history only the tokens."""
    if arguments["do_sample"]:
        return "do_sample=True"
    if arguments["num_beams"] > 1:
        return f"num_beams={arguments['num_beams']}"
    for name, neutral in generation.OWN_RUN.items():
        value = arguments.get(name, getattr(generation_config, name, None))
        if value not in neutral:
            return f"{name}={value}"
    return None


@dataclass
class GridPass:
    """One batch of samples in many configurations.

    Attributes:
        model, tokenizer: as loaded.
        plan: how every answer is decoded.
        most_rows: of one decoding batch; None decides by free memory.
        clock: seconds spent on prefill, forks and decoding, added up.
        record_kept: the proofs of eviction say which positions stayed.
    """

    model: Any
    tokenizer: Any
    plan: decoding.Decoding
    most_rows: int | None
    clock: dict[str, float]
    record_kept: bool = False

    def answers(self, inputs: Callable[[], Any], wanted: Sequence[Sequence[KVConfig]]) -> Iterator[dict[Row, Outcome]]:
        """Answers as they appear, a decoding batch at a time.

        Args:
            inputs: makes the processor's output for the batch.
            wanted: per sample, the configurations.

        Raises:
            Exception: the prefill failed; nothing was yielded before.
        """
        configs = list(dict.fromkeys(config for sample in wanted for config in sample))
        with SharedPrefill(self.model, configs) as shared, torch.inference_mode():
            shared.record_kept = self.record_kept
            started = time.perf_counter()
            batch = inputs()
            length, rooms = batch["input_ids"].shape[1], self.plan.rooms(batch["attention_mask"])
            finite = FiniteLogits(length)
            arguments = self.plan.arguments | {"max_new_tokens": 1, "use_cache": True}
            first = self.model.generate(**batch, **arguments, logits_processor=finite.as_list)
            prompt = _Prompt(first, batch["attention_mask"], rooms, self._finished(first, length, rooms))
            spent = self._count("prefill", started)
            shares = [spent / max(1, sum(map(len, wanted)))] * len(wanted)
            broken = finite.reasons([1] * len(rooms))
            yield {
                (i, c): Outcome(error=reason, shared=True)
                for i, reason in enumerate(broken)
                if reason
                for c in wanted[i]
            }
            sound = [[] if reason else configs for reason, configs in zip(broken, wanted, strict=True)]
            for rows in self._groups(shared, sound):
                yield from self._decoded(shared, prompt, rows, shares)

    def _finished(self, sequences: Tensor, length: int, rooms: list[int]) -> list[bool]:
        """Samples whose answer ends with its first token, in every configuration."""
        stopped = self.plan.criteria(self.tokenizer, length)(sequences, None)  # type: ignore[arg-type]
        ended = [bool(stop) or int(row[-1]) in self.plan.eos for stop, row in zip(stopped, sequences, strict=True)]
        return [room == 1 or end for room, end in zip(rooms, ended, strict=True)]

    def _groups(self, shared: SharedPrefill, wanted: Sequence[Sequence[KVConfig]]) -> Iterator[list[Row]]:
        """Rows of similar budgets, the largest first, as many as fit."""
        rows = [(sample, config) for sample, configs in enumerate(wanted) for config in configs]
        rows.sort(key=lambda row: (row[1].decode, -row[1].retention))
        group: list[Row] = []
        for row in rows:
            if group and (
                row[1].decode != group[0][1].decode
                or row[1].retention * _SPREAD < group[0][1].retention
                or len(group) >= self._most(shared, group[0][1].retention)
            ):
                yield group
                group = []
            group.append(row)
        if group:
            yield group

    def _most(self, shared: SharedPrefill, retention: float) -> int:
        if self.most_rows is not None:
            return self.most_rows
        generated = -(-self.plan.arguments["max_new_tokens"] // ROOM) * ROOM
        row = shared.prompt_bytes() * retention + shared.token_bytes() * generated
        return max(1, min(_MOST_ROWS, int(_PART_OF_FREE_MEMORY * _free_bytes(self.model.device) / max(row, 1))))

    def _decoded(
        self, shared: SharedPrefill, prompt: _Prompt, rows: list[Row], shares: list[float]
    ) -> Iterator[dict[Row, Outcome]]:
        """If a decoding batch fails, its halves are tried, down to the row that is broken."""
        try:
            yield self._decode(shared, prompt, rows, shares)
            return
        except Exception as error:
            reason = failure(error)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if len(rows) == 1:
            yield {rows[0]: Outcome(error=reason, shared=True)}
            return
        if reason.startswith("OutOfMemoryError"):
            self.most_rows = max(1, len(rows) // 2)
        middle = len(rows) // 2
        yield from self._decoded(shared, prompt, rows[:middle], shares)
        yield from self._decoded(shared, prompt, rows[middle:], shares)

    def _decode(
        self, shared: SharedPrefill, prompt: _Prompt, rows: list[Row], shares: list[float]
    ) -> dict[Row, Outcome]:
        started = time.perf_counter()
        going = [row for row in rows if not prompt.finished[row[0]]]
        ended = [row for row in rows if prompt.finished[row[0]]]
        length = prompt.mask.shape[1]
        proofs = dict(zip(ended, shared.fork(ended)[1], strict=True)) if ended else {}
        tokens = {row: prompt.sequences[row[0], length:].tolist() for row in ended}
        cache = None
        if going:
            cache, fresh = shared.fork(going)
            proofs |= dict(zip(going, fresh, strict=True))
        self._count("forks", started)
        finite = FiniteLogits(length)
        if going:
            tokens |= dict(zip(going, self._continue(prompt, cache, going, finite), strict=True))
        seconds = (time.perf_counter() - started) / len(rows)
        answers = {
            row: decoding.read_answer(ids, self.plan, self.tokenizer, prompt.rooms[row[0]])
            for row, ids in tokens.items()
        }
        reasons = finite.reasons([answers[row].generated for row in going])
        broken = {row: reason for row, reason in zip(going, reasons, strict=True) if reason}
        return {
            row: Outcome(
                answer=None if row in broken else answers[row],
                seconds=seconds + shares[row[0]],
                shared=True,
                eviction=None if row in broken else proofs[row],
                error=broken.get(row),
            )
            for row in rows
        }

    def _continue(self, prompt: _Prompt, cache: Any, rows: list[Row], finite: FiniteLogits) -> list[list[int]]:
        started, length = time.perf_counter(), prompt.mask.shape[1]
        limit = max(prompt.rooms[sample] for sample, _ in rows) - 1
        output = self.model.generate(
            **SharedPrefill.continuation(prompt.sequences, prompt.mask, rows),
            **{kernels.cache_argument(self.model): cache},
            **self.plan.arguments | {"max_new_tokens": limit, "use_cache": True},
            stopping_criteria=self.plan.criteria(self.tokenizer, length),
            logits_processor=finite.as_list,
        )
        self._count("decode", started)
        return output[:, length:].tolist()

    def _count(self, phase: str, started: float) -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        spent = time.perf_counter() - started
        self.clock[phase] = self.clock.get(phase, 0.0) + spent
        return spent


@dataclass
class _Prompt:
    """A prefilled batch: (B, N + 1) prompt and first token, (B, N) mask, most new tokens, whose answer has ended."""

    sequences: Tensor
    mask: Tensor
    rooms: list[int]
    finished: list[bool]


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reusable
    return psutil.virtual_memory().available

"""What lmms-eval sees of all wrappers: what is asked for, what the store has of it, and what that leaves to compute."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import gather_object
from lmms_eval.api.instance import GenerationResult, Instance, TokenCounts
from lmms_eval.api.model import lmms
from lmms_eval.models.model_utils.gen_metrics import log_metrics
from transformers import BatchFeature

from kv_caches import KVConfig
from kv_caches.errors import one_line
from kv_caches.prompt import vision_token_ids
from lmms_eval_plugins import captions, decoding, figures, kept, limits, media, outputs, precedence, records, session
from lmms_eval_plugins.errors import PromptError, SamplesFailed, fail_at_exit, stop_on_config_error
from lmms_eval_plugins.journal import stop_if_not_written
from lmms_eval_plugins.models.asking import Asking
from lmms_eval_plugins.models.compute import Asked, Computation, Run
from lmms_eval_plugins.models.loading import LoadedOnDemand
from lmms_eval_plugins.models.request import Request
from lmms_eval_plugins.progress import Progress
from lmms_eval_plugins.settings import Family, RunSettings, for_config, resolve
from lmms_eval_plugins.signals import stopping_on_signals
from lmms_eval_plugins.store import Key, Store, newest_records


class EvictionWrapper(LoadedOnDemand, Asking, lmms):
    """A vision-language model whose cache keeps what the environment says.

    A family adds `build_inputs` (requests to processor output) and `default_limit` (new tokens if the task names none).

    Attributes:
        session: what wrappers of one process share.
        clock: seconds spent on each phase of shared prefills.
        record_kept: KV_RECORD_KEPT.
        seed: lmms-eval's `--seed` for torch, which decides sampled answers.
    """

    is_simple = True
    family: Family
    default_limit: int

    def __init__(self, **args: Any):
        super().__init__()
        self.settings = resolve(self.family, "simple" if self.is_simple else "chat", args)
        self.session = session.current()
        self.clock: dict[str, float] = {}
        self.record_kept, self.seed = kept.wanted(), torch.initial_seed()
        self._records = records.base_dir()
        captions.start_java_once()
        limits.count_per_task()
        precedence.our_tasks_first()
        outputs.belong_to(self.settings.fingerprint, self._records / self.settings.fingerprint)
        self._start_processes()
        self._runs = {self.settings.kv: self._open(self.settings)}
        self._report_start()
        self._done = self._failed = 0

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: dict | None = None) -> EvictionWrapper:
        """As lmms-eval calls it; a run that cannot be as asked ends with one line."""
        with stop_on_config_error():
            return super().create_from_arg_string(arg_string, additional_config)

    def _start_processes(self) -> None:
        started = AcceleratorState._shared_state != {}
        self.accelerator = Accelerator() if started else Accelerator(cpu=self.settings.device == "cpu")
        self._rank, self._world_size = self.accelerator.process_index, self.accelerator.num_processes

    def _open(self, run: RunSettings) -> Run:
        """The store of a configuration, locked for this process."""
        directory = self._records / run.fingerprint
        store = Store(directory, self.record_kept).open(self.rank)
        if self.rank == 0:
            content = records.configuration(run, self.world_size)
            with stop_if_not_written(directory):
                records.write_json(directory / "config.json", content)
            if not len(store) and (told := records.of_other_versions(content, directory)):
                print(f"[kv] {told}", flush=True)
            if store.ignored:
                print(f"[kv] {directory}: {store.ignored} records of an older version are ignored", flush=True)
        return Run(run, store)

    def _report_start(self) -> None:
        if self.rank != 0:
            return
        run, store = self._runs[self.settings.kv]
        (store.directory / "summary.json").unlink(missing_ok=True)
        if self.session.reported:
            return
        self.session.reported = True
        processes = "1 process runs" if self.world_size == 1 else f"{self.world_size} processes run"
        kept = run.kv.describe() if run.kv else "KV_CACHE_TYPE is not set: stock behaviour, the whole cache is kept"
        print(f"[kv] {kept}")
        print(f"[kv] {processes} on {run.device}, {run.dtype}, batch size {run.batch_size}, {run.wrapper} prompts")
        if run.row and "MODEL_TYPE" not in os.environ:
            sizes = f"{run.pretrained} has the architecture and sizes of {run.row}"
            self.say(f"MODEL_TYPE is not set; {sizes}: tables call it that, beside the paper's numbers")
        for note in run.vision.notes:
            self.say(note)
        print(f"[kv] records: {store.directory}", flush=True)

    def say(self, note: str) -> None:
        """Prints a line once per process; of several processes the first speaks."""
        if self.rank == 0 and note not in self.session.said:
            print(f"[kv] {one_line(note)}", flush=True)
        self.session.said.add(note)

    def build_inputs(self, requests: list[Request]) -> BatchFeature:
        """Prompts and pictures of a batch, tokenised with left padding, on the CPU."""
        raise NotImplementedError

    def read_text(self, text: str) -> str:
        """The answer in a decoded text."""
        return text

    @property
    def device(self) -> torch.device:
        return torch.device(self.settings.device)

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size

    @property
    def eot_token_id(self) -> int:
        return self.tokenizer.eos_token_id

    @property
    def pad_token_id(self) -> int:
        pad = self.tokenizer.pad_token_id
        return self.eot_token_id if pad is None else pad

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        raise NotImplementedError(
            f"{self.family.name}: log-likelihood requests need no generation, so nothing is evicted"
        )

    def generate_until_multi_round(self, requests: list[Instance]) -> list[str]:
        raise NotImplementedError(f"{self.family.name}: multi-round generation is not supported")

    def plan(self, request: Request) -> decoding.Decoding:
        """How a request and those batched with it are decoded."""
        cap = self.settings.max_new_tokens
        return decoding.plan(request.gen_kwargs, self.default_limit, cap, self._eos, self.pad_token_id, self._context)

    @property
    def _context(self) -> int | None:
        """Most tokens of a prompt with its answer; stock behaviour knows no limit."""
        text = self.settings.hf_config.get_text_config(decoder=True)
        return getattr(text, "max_position_embeddings", None) if self.settings.kv else None

    def inputs(self, requests: list[Request]) -> BatchFeature:
        """`build_inputs` where the model is, in its precision.

        Raises:
            PromptError: one that asks nothing, would not be seen whole, or leaves no room for an answer.
        """
        with self.documents_kept():
            for one in requests:
                self.content_hash(one)  # what cannot be told from other prompts is not asked
            if self.settings.kv is not None and any(one.asks_nothing(self.document(one)) for one in requests):
                raise PromptError("the prompt is empty: neither text nor a picture")
            batch = self.build_inputs(requests)
            given = [len(one.media(self.document(one))) for one in requests]
        media.check_shown(batch, given, vision_token_ids(self.settings.hf_config))
        longest = int(batch["attention_mask"].sum(dim=1).max())
        if self._context is not None and longest >= self._context:
            raise PromptError(f"the prompt has {longest} tokens, but the model's context is {self._context}")
        return batch.to(self.device, self._model.dtype)

    def generate_until(self, requests: list[Instance]) -> list[GenerationResult]:
        """Answers in the order of the requests, from the store, after what it lacks was computed.

        A failed sample has no answer; see `clean`.
        """
        with media.whole_pictures():
            return self._answers(requests)

    def _answers(self, requests: list[Instance]) -> list[GenerationResult]:
        results, asked = [GenerationResult(text="")] * len(requests), self.asked(requests)
        run = self._runs[self.settings.kv]
        missing = sum(self._is_missing(run, one.key) for one in asked)
        if self.rank == 0 and (missing or self.session.configs is None):
            of = "" if self.world_size == 1 else " (of process 0)"
            print(f"[kv] {len(asked) - missing} of {len(asked)} answers{of} are in the store", flush=True)
        self.session.used[self.settings.fingerprint] = {one.key for one in asked}
        seconds = self._compute(asked) if missing else 0.0
        generated = 0
        for one in asked:
            stored = run.store.find(one.key)
            self._done += 1
            if stored is None:
                self._failed += 1
                one.request.leave_out()
                continue
            tokens = TokenCounts(output_tokens=stored.generated)
            results[one.request.index] = GenerationResult(text=stored.text, token_counts=tokens)
            generated += stored.generated
        speed = generated / seconds if seconds else 0.0
        log_metrics(seconds, generated, speed, additional_metrics={"rank": self.rank})
        return results

    def _is_missing(self, run: Run, key: Key) -> bool:
        failed = (run.settings.fingerprint, key) in self.session.failed
        return run.store.find(key) is None and not failed

    def _compute(self, asked: list[Asked]) -> float:
        """Computes what is missing, for all configurations of the sweep; returns this configuration's seconds.

        Not called if this configuration is complete: what others lack is computed when one of them is scored.
        """
        for config in self._configs():
            if config not in self._runs:
                self._runs[config] = self._open(for_config(self.settings, config))
        for one in asked:
            one.missing = [config for config, run in self._runs.items() if self._is_missing(run, one.key)]
        total = sum(len(one.missing) for one in asked)
        if self.rank == 0 and len(self._runs) > 1:
            print(f"[kv] computing {total} answers of {len(self._runs)} configurations", flush=True)
        self._ready()
        progress = Progress(total, active=self.rank == 0)
        computation = Computation(self, self._runs, progress, clock=self.clock)
        try:
            with stopping_on_signals():
                computation.run(asked)
        finally:
            progress.close()
        return computation.seconds.get(self.settings.kv, 0.0)

    def _configs(self) -> list[KVConfig]:
        """What is computed together with this run's configuration."""
        if self.settings.kv is None:
            return []
        return self.session.configs or list(self.settings.sweep)

    def _gather_keys(self) -> None:
        """What was asked of all processes, and what of it has no answer."""
        if self.world_size > 1:
            name = self.settings.fingerprint
            failed = [(key, why) for (of, key), why in self.session.failed.items() if of == name]
            both = gather_object([(list(self.session.used.get(name, ())), failed)])
            self.session.used[name] = {key for keys, _ in both for key in keys}
            self.session.failed |= {(name, key): why for _, failures in both for key, why in failures}

    def _note_figures(self, directory: Path) -> None:
        """What results say beside the scores, taken from the records of exactly the samples that were asked for."""
        name = self.settings.fingerprint
        asked = self.session.used.get(name, set())
        failed = [key for key in asked if (name, key) in self.session.failed]
        found = figures.by_task(asked, failed, newest_records(directory))
        self.session.figures[name] = found
        outputs.say(found)
        if missing := figures.missing_records(found, directory):
            self.session.records_missing = True
            fail_at_exit()
            print(f"error: {missing}", file=sys.stderr, flush=True)

    def clean(self) -> None:
        """Called by lmms-eval on every process between the last answer and the first metric.

        Raises:
            SamplesFailed: samples failed and `KV_ALLOW_FAILURES` is not 1. No score is computed; every answer is on
                disk.
        """
        counts = torch.tensor([self._done, self._failed], device=self.accelerator.device)
        done, failed = self.accelerator.gather(counts).view(-1, 2).sum(dim=0).tolist()
        self._gather_keys()
        for run in self._runs.values():
            run.store.close()
        directory = self._records / self.settings.fingerprint
        if self.rank == 0:
            summary = {"samples": done, "failed": failed, "processes": self.world_size}
            records.write_json(directory / "summary.json", {**summary, "fingerprint": self.settings.fingerprint})
            log_metrics(0.0, 0, 0.0, additional_metrics={"samples": done, "failed_samples": failed})
            self._note_figures(directory)
        if self.session.configs is None:
            self.session.loaded = None
        super().clean()
        if not failed:
            return
        count = f"{failed} of {done} samples failed"
        if failed == done or not self.settings.allow_failures:
            raise SamplesFailed(
                f"{count}; no score is computed (KV_ALLOW_FAILURES=1 scores the others); see {directory}"
            )
        if self.rank == 0:
            print(
                f"[kv] {count} and are left out of the scores (KV_ALLOW_FAILURES=1); see {directory}",
                flush=True,
            )

"""The generation loop that all wrappers share: batches, eviction, stop rules, failures, records."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from lmms_eval.api.instance import GenerationResult, Instance, TokenCounts
from lmms_eval.api.model import lmms
from lmms_eval.models.model_utils.gen_metrics import log_metrics
from tqdm import tqdm
from transformers import AutoModelForImageTextToText, AutoProcessor, BatchFeature

from kv_caches import attach
from lmms_eval_plugins import decoding, records
from lmms_eval_plugins.errors import RunStopped, stop_on_config_error
from lmms_eval_plugins.models.request import Request, batches
from lmms_eval_plugins.settings import Family, resolve


@dataclass
class Outcome:
    """What became of one request."""

    answer: decoding.Answer | None = None
    seconds: float = 0.0
    eviction: dict[str, Any] | None = None
    error: str | None = None


class EvictionWrapper(lmms):
    """A vision-language model whose cache keeps what the environment says.

    A family adds `build_inputs` (requests to processor output) and `default_limit` (new tokens if the task names none).
    """

    is_simple = True
    family: Family
    default_limit: int

    def __init__(self, **args: Any):
        super().__init__()
        self.settings = resolve(self.family, "simple" if self.is_simple else "chat", args)
        self._start_processes()
        self._report_start()
        self._load()
        self._attachment = attach(self._model, self.settings.kv) if self.settings.kv else None
        self._writer = records.RecordWriter(records.run_dir(self.settings.fingerprint), self.rank)
        self._done = self._failed = 0

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: dict | None = None) -> "EvictionWrapper":
        """As lmms-eval calls it; a run that cannot be as asked ends with one line."""
        with stop_on_config_error():
            return super().create_from_arg_string(arg_string, additional_config)

    def _start_processes(self) -> None:
        started = AcceleratorState._shared_state != {}
        self.accelerator = Accelerator() if started else Accelerator(cpu=self.settings.device == "cpu")
        self._rank, self._world_size = self.accelerator.process_index, self.accelerator.num_processes

    def _report_start(self) -> None:
        if self.rank != 0:
            return
        run = self.settings
        processes = "1 process runs" if self.world_size == 1 else f"{self.world_size} processes run"
        kept = run.kv.describe() if run.kv else "KV_CACHE_TYPE is not set: stock behaviour, the whole cache is kept"
        print(f"[kv] {kept}")
        print(f"[kv] {processes} on {run.device}, {run.dtype}, batch size {run.batch_size}, {run.wrapper} prompts")
        for note in run.vision.notes:
            print(f"[kv] {note}")
        print(f"[kv] records: {records.run_dir(run.fingerprint)}", flush=True)
        directory = records.run_dir(run.fingerprint)
        (directory / "summary.json").unlink(missing_ok=True)
        records.write_json(directory / "config.json", self._configuration())

    def _configuration(self) -> dict[str, Any]:
        run = self.settings
        return {
            "fingerprint": run.fingerprint,
            "config": asdict(run.kv) if run.kv else None,
            "model": run.pretrained,
            "revision": run.revision,
            "commit": getattr(run.hf_config, "_commit_hash", None),
            "model_type": run.hf_config.model_type,
            "lmms_eval_model": run.family.name,
            "wrapper": run.wrapper,
            "device": run.device,
            "dtype": run.dtype,
            "attn_implementation": run.attn_implementation,
            "batch_size": run.batch_size,
            "processes": self.world_size,
            "image_max_tokens": run.vision.image_max_tokens,
            "vision_aspect_ratio": run.vision.aspect_ratio,
            "model_args": run.options,
            "versions": records.versions(),
        }

    def _load(self) -> None:
        run = self.settings
        common = {"revision": run.revision, "trust_remote_code": run.trust_remote_code}
        kernel = {"attn_implementation": run.attn_implementation} if run.attn_implementation else {}
        self._model = AutoModelForImageTextToText.from_pretrained(
            run.pretrained, dtype=run.dtype, device_map=run.device_map, **common, **kernel
        ).eval()
        self.processor = AutoProcessor.from_pretrained(run.pretrained, **common, **self.processor_arguments())
        self.tokenizer = self.processor.tokenizer
        self.tokenizer.padding_side = "left"
        self._eos = decoding.eos_ids(self._model, self.tokenizer)

    def processor_arguments(self) -> dict[str, Any]:
        """Further arguments for loading the processor."""
        return {}

    def build_inputs(self, requests: list[Request]) -> BatchFeature:
        """Prompts and pictures of a batch, tokenised with left padding, on the CPU."""
        raise NotImplementedError

    def read_text(self, text: str) -> str:
        """The answer in a decoded text."""
        return text

    @property
    def model(self) -> Any:
        return self._model

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

    def document(self, request: Request) -> dict[str, Any]:
        """The task's document behind a request."""
        return self.task_dict[request.task][request.split][request.doc_id]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        raise NotImplementedError(
            f"{self.family.name}: log-likelihood requests need no generation, so nothing is evicted"
        )

    def generate_until_multi_round(self, requests: list[Instance]) -> list[str]:
        raise NotImplementedError(f"{self.family.name}: multi-round generation is not supported")

    def generate_until(self, requests: list[Instance]) -> list[GenerationResult]:
        """Answers in the order of the requests. A failed sample has no answer; see `clean`."""
        todo = [Request.of(i, instance, chat=not self.is_simple) for i, instance in enumerate(requests)]
        results = [GenerationResult(text="")] * len(todo)
        todo = [request for request in todo if not request.is_padding]
        seconds, generated = 0.0, 0
        seldom = 0.1 if sys.stderr.isatty() else 10  # seconds; a log needs no more
        with tqdm(total=len(todo), disable=self.rank != 0, mininterval=seldom, desc="Model Responding") as bar:
            for batch in batches(todo, self.batch_size):
                for request, outcome in zip(batch, self._answer_or_fail(batch), strict=True):
                    self._note(request, outcome)
                    if outcome.answer is not None:
                        results[request.index] = _result(outcome.answer)
                        generated += outcome.answer.generated
                    seconds += outcome.seconds
                    bar.update(1)
        speed = generated / seconds if seconds else 0.0
        log_metrics(seconds, generated, speed, additional_metrics={"rank": self.rank})
        return results

    def _answer_or_fail(self, batch: list[Request]) -> list[Outcome]:
        """If a batch fails, each of its samples is tried alone, so that only the broken ones fail."""
        started = time.perf_counter()
        try:
            return self._answer(batch)
        except Exception as error:
            failure = Outcome(error=f"{type(error).__name__}: {error}", seconds=time.perf_counter() - started)
        # Outside the handler: the traceback holds on to the memory of the failed batch.
        if self._attachment is not None:
            self._attachment.take_records()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if len(batch) == 1:
            return [failure]
        return [outcome for request in batch for outcome in self._answer_or_fail([request])]

    def _answer(self, batch: list[Request]) -> list[Outcome]:
        inputs = self.build_inputs(batch).to(self.device, self._model.dtype)
        length = inputs["input_ids"].shape[1]
        cap = self.settings.kv.max_new_tokens if self.settings.kv else None
        plan = decoding.plan(batch[0].gen_kwargs, self.default_limit, cap, self._eos, self.pad_token_id)
        started = time.perf_counter()
        with torch.inference_mode():
            output = self._model.generate(
                **inputs,
                **plan.arguments,
                use_cache=self.settings.options["use_cache"],
                stopping_criteria=plan.criteria(self.tokenizer, length),
            )
        rows = output[:, length:].tolist()
        seconds = (time.perf_counter() - started) / len(batch)
        answers = [decoding.read_answer(row, plan, self.tokenizer) for row in rows]
        return [
            Outcome(answer=answer, seconds=seconds, eviction=eviction)
            for answer, eviction in zip(answers, self._evictions(len(batch)), strict=True)
        ]

    def _evictions(self, samples: int) -> Sequence[dict[str, Any] | None]:
        """The proof of eviction of each sample; with beams the first beam's, which all share the prefill."""
        if self._attachment is None:
            return [None] * samples
        taken = self._attachment.take_records()
        if not taken or len(taken) % samples:
            raise RuntimeError(f"{len(taken)} eviction records for {samples} samples: the prefill was not seen")
        return taken[:: len(taken) // samples]

    def _note(self, request: Request, outcome: Outcome) -> None:
        answer = outcome.answer
        if answer is not None:
            answer = outcome.answer = decoding.Answer(**{**vars(answer), "text": self.read_text(answer.text)})
        self._writer.write(
            {
                "task": request.task,
                "doc_id": request.doc_id,
                "status": "ok" if answer else "failed",
                "error": outcome.error,
                "answer": answer.text if answer else None,
                "answer_tokens": answer.tokens if answer else None,
                "stop_reason": answer.stop_reason if answer else None,
                "seconds": round(outcome.seconds, 4),
                "wrapper": self.settings.wrapper,
                "fingerprint": self.settings.fingerprint,
                "eviction": outcome.eviction,
            }
        )
        self._done += 1
        if answer is None:
            self._failed += 1
            tqdm.write(f"[kv] {request.task}/{request.doc_id} failed: {outcome.error}")
            request.leave_out()

    def clean(self) -> None:
        """Called by lmms-eval on every process between the last answer and the first metric.

        Raises:
            RunStopped: samples failed and `KV_ALLOW_FAILURES` is not 1. No score is computed; every answer is on disk.
        """
        counts = torch.tensor([self._done, self._failed], device=self.accelerator.device)
        done, failed = self.accelerator.gather(counts).view(-1, 2).sum(dim=0).tolist()
        if self._attachment is not None:
            self._attachment.detach()
        self._attachment = None
        self._writer.close()
        directory = records.run_dir(self.settings.fingerprint)
        if self.rank == 0:
            summary = {"samples": done, "failed": failed, "processes": self.world_size}
            records.write_json(directory / "summary.json", {**summary, "fingerprint": self.settings.fingerprint})
            log_metrics(0.0, 0, 0.0, additional_metrics={"samples": done, "failed_samples": failed})
        super().clean()
        if not failed:
            return
        count = f"{failed} of {done} samples failed"
        if failed == done or not self.settings.allow_failures:
            raise RunStopped(f"{count}; no score is computed (KV_ALLOW_FAILURES=1 scores the others); see {directory}")
        if self.rank == 0:
            print(
                f"[kv] {count} and are left out of the scores (KV_ALLOW_FAILURES=1); see {directory}",
                flush=True,
            )


def _result(answer: decoding.Answer) -> GenerationResult:
    return GenerationResult(text=answer.text, token_counts=TokenCounts(output_tokens=answer.generated))

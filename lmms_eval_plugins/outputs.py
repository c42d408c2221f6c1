"""The files that lmms-eval writes for a run: a name that no other run has, where its records are, what was asked.

lmms-eval names them by the second in which a run began. Of two runs into one folder the second would write over the
scores of the first, and add its samples to theirs. It logs a file that it cannot write as a warning and goes on, and
gives up at half a surrogate pair or a task's name with a slash.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lmms_eval_plugins.errors import RunStopped
from lmms_eval_plugins.files import ODD_CHARACTERS, file_name

PROMPT = "kv_prompt"
"""What a sample says of its prompt: the hash of what was asked."""
_SCORES = "_results.json"
_ours: dict[str, Any] = {}
"""Fingerprint, records and figures of the newest wrapper of this process."""


def belong_to(fingerprint: str, records: Path) -> None:
    """Says whose results lmms-eval writes next in this process."""
    _ours.update(fingerprint=fingerprint, records=records.resolve(), tasks={})
    _correct()


def say(figures: dict[str, dict[str, Any]]) -> None:
    """Adds to those results what the run says of each task; see `figures.by_task`."""
    _ours["tasks"] = figures


def relative(records: Path, folder: Path) -> str:
    """Records as files of a folder name them: they are found while both keep their places to each other."""
    return os.path.relpath(records.resolve(), folder.resolve())


def _correct() -> None:
    """Corrects lmms-eval's tracker in this process; does nothing the second time."""
    from lmms_eval import evaluator
    from lmms_eval.loggers import evaluation_tracker as module

    tracker = module.EvaluationTracker
    if getattr(tracker, "corrected", False):
        return
    aggregated, of_task, hashed = tracker.save_results_aggregated, tracker.save_results_samples, evaluator.hash_string

    def save_results_aggregated(self: Any, results: dict[str, Any], samples: Any, datetime_str: str) -> None:
        is_ours = str(results["config"].get("model_backend")).startswith("lmms_eval_plugins.")
        if is_ours:
            _note_prompts(samples or {})
        if not self.output_path:
            return aggregated(self, results, samples, datetime_str)
        folder = Path(self.output_path) / self.general_config_tracker.model_name_sanitized
        if is_ours:
            records = relative(_ours["records"], folder)
            results["kv"] = {"fingerprint": _ours["fingerprint"], "records": records, "tasks": _ours["tasks"]}
        results["date"] = date = _claimed(folder, datetime_str)
        path = folder / f"{date}{_SCORES}"
        try:
            aggregated(self, results, samples, date)
        finally:
            is_whole = _drop_if_torn(path)
        if not is_whole:  # written when Python closes it, where no error is seen
            raise RunStopped(f"{path} is not whole. {_AGAIN}", process=True)

    def save_results_samples(self: Any, task_name: str, samples: Any) -> None:
        of_task(self, file_name(task_name), samples)

    tracker.save_results_aggregated, tracker.save_results_samples = save_results_aggregated, save_results_samples
    tracker.corrected = True
    module.json = SimpleNamespace(dumps=lambda *args, **options: _plain(json.dumps(*args, **options)))
    module.eval_logger = _Logger(module.eval_logger)
    evaluator.hash_string = lambda text: hashed(_plain(text))


_AGAIN = "Is the disk full? The answers are in the store: make room, or name another --output_path, and run it again"


class _Logger:
    """lmms-eval's, but that a result which is not written ends the run."""

    def __init__(self, logger: Any):
        self._logger = logger

    def warning(self, message: str, *args: Any) -> None:
        if message.startswith("Could not save"):
            raise RunStopped(f"--output_path: {message}: {sys.exc_info()[1]!r}. {_AGAIN}", process=True)
        self._logger.warning(message, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)


def _note_prompts(samples: dict[str, list[dict[str, Any]]]) -> None:
    for task, mine in samples.items():
        prompts = _ours["tasks"].get(task, {}).get("prompts", {})
        for sample in mine:
            sample[PROMPT] = prompts.get(str(sample["doc_id"]))


def _plain(text: str) -> str:
    return text.encode(errors=ODD_CHARACTERS).decode()


def _claimed(folder: Path, date: str) -> str:
    """The date, or with `-2`, `-3` and so on behind it: the first whose file nobody has; it is made, and empty."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            name = date if number == 1 else f"{date}-{number}"
            with suppress(FileExistsError):
                (folder / f"{name}{_SCORES}").touch(exist_ok=False)
                return name
    except OSError:
        pass  # lmms-eval comes upon the same and says so
    return date


def _drop_if_torn(path: Path) -> bool:
    """A file that lmms-eval could not finish is not left to be taken for results; returns whether it is whole."""
    with suppress(OSError):
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            path.unlink()
            return False
        return True
    return False

"""The files that lmms-eval writes for a run: a name that no other run has, and where the run's records are.

lmms-eval names them by the second in which a run began. Of two runs into one folder the second would write over the
scores of the first, and add its samples to theirs.
"""

from __future__ import annotations

import itertools
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

_SCORES = "_results.json"
_ours: dict[str, Any] = {}
"""Fingerprint and records of the newest wrapper of this process."""


def belong_to(fingerprint: str, records: Path) -> None:
    """Says whose results lmms-eval writes next in this process."""
    _ours.update(fingerprint=fingerprint, records=records.resolve())
    _keep_apart()


def relative(records: Path, folder: Path) -> str:
    """Records as files of a folder name them: they are found while both keep their places to each other."""
    return os.path.relpath(records.resolve(), folder.resolve())


def _keep_apart() -> None:
    """Corrects lmms-eval's tracker in this process; does nothing the second time."""
    from lmms_eval.loggers.evaluation_tracker import EvaluationTracker

    stock = EvaluationTracker.save_results_aggregated
    if getattr(stock, "apart", False):
        return

    def save_results_aggregated(self: Any, results: dict[str, Any], samples: Any, datetime_str: str) -> None:
        if not self.output_path:
            return stock(self, results, samples, datetime_str)
        folder = Path(self.output_path) / self.general_config_tracker.model_name_sanitized
        if str(results["config"].get("model_backend")).startswith("lmms_eval_plugins."):
            results["kv"] = {"fingerprint": _ours["fingerprint"], "records": relative(_ours["records"], folder)}
        results["date"] = date = _claimed(folder, datetime_str)
        try:
            stock(self, results, samples, date)
        finally:
            _drop_if_torn(folder / f"{date}{_SCORES}")

    save_results_aggregated.apart = True  # type: ignore[attr-defined]
    EvaluationTracker.save_results_aggregated = save_results_aggregated


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


def _drop_if_torn(path: Path) -> None:
    """A file that lmms-eval could not finish is not left to be taken for results."""
    with suppress(OSError):
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            path.unlink()

"""The scores of finished runs written anew, from the verdicts that are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmms_eval_plugins import records, results
from lmms_eval_plugins.journal import stop_if_not_written
from lmms_eval_plugins.judge import scoring
from lmms_eval_plugins.judge.runs import Found, Samples, read
from lmms_eval_plugins.judge.settings import JudgeSettings


def judge(found: Sequence[Found], settings: JudgeSettings) -> None:
    """Takes over the verdicts that are there now, and writes scores, counts and the comparison with the full cache."""
    for one in found:
        for sample in one.samples:
            sample[scoring.METRIC] = scoring.judged(sample[scoring.METRIC], settings)
    full = {one.task: one.samples for one in found if _is_full(one)}
    for one in found:
        _write(one, full.get(one.task))


def _write(one: Found, full: Samples | None) -> None:
    if one.scores.is_file():
        content = read(one.scores, one.task)
        alone = results.scored({"metrics": content["results"][one.task], "counts": {}}, one.samples, None)
        content["results"][one.task] = alone["metrics"]
        content.setdefault("judge", {})[one.task] = alone["judge"] | alone["counts"]
        _replace(one.scores, content)
    if one.result is not None:
        _replace(one.result, results.scored(read(one.result, one.task), one.samples, full))


def _replace(path: Path, content: dict[str, Any]) -> None:
    with stop_if_not_written(path):
        records.write_json(path, content)


def _is_full(one: Found) -> bool:
    config = read(one.result, one.task)["config"] if one.result is not None else None
    return config is not None and config["method"] == "full"

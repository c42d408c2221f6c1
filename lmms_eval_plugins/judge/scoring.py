"""What a task with open answers names in its file: a score per sample without any request, and their mean.

`process_results` reads the verdict of an answer from the verdict store (`KV_JUDGE=api`), applies the offline rule
(`KV_JUDGE=exact`), or leaves the sample unjudged (`KV_JUDGE=none`). An unjudged sample has no score: it is not a 0.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from lmms_eval_plugins.judge import exact, verdicts
from lmms_eval_plugins.judge.settings import JudgeSettings

METRIC = "videott_open_ended_score"
_FIELDS = ("video_id", "capability", "question", "answer", "answers")


def process_results(doc: dict[str, Any], results: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The sample's entry for lmms-eval: everything a judge needs, and `score` (100 or 0) if it is judged.

    Args:
        doc: with `question` and `answer`; if it has them, more `answers` that are accepted, `video_id`, `capability`.
        results: the answer.
    """
    entry = {name: doc[name] for name in _FIELDS if doc.get(name) is not None}
    return {METRIC: judged(entry | {"prediction": results[0]}, JudgeSettings.from_env(os.environ))}


def judged(entry: dict[str, Any], judge: JudgeSettings) -> dict[str, Any]:
    """An entry as it is now: with the verdict that is there, or without a score."""
    entry = {name: value for name, value in entry.items() if name not in ("score", "verdict", "judge")}
    entry["judge"] = judge.kind
    if judge.kind == "exact":
        accepted = [entry["answer"], *(entry.get("answers") or ())]
        return entry | {"score": 100.0 * exact.is_right(entry["prediction"], accepted)}
    verdict = verdicts.find(entry, judge) if judge.kind == "api" else None
    if verdict is None:
        return entry
    return entry | {"score": 100.0 * (verdict["score"] >= verdicts.RIGHT_FROM), "verdict": verdict}


def aggregate(entries: Sequence[dict[str, Any]]) -> float | None:
    """Percent of the judged samples that are right; None if none is judged."""
    scores = [entry["score"] for entry in entries if "score" in entry]
    return sum(scores) / len(scores) if scores else None


def counts(entries: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Samples with and without a verdict."""
    there = sum("score" in entry for entry in entries)
    return {"judged": there, "unjudged": len(entries) - there}

"""One result file per task and configuration: lmms-eval's metrics, and what is needed to trust and compare them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from lmms_eval_plugins import records, session
from lmms_eval_plugins.judge import exact, prompt, scoring
from lmms_eval_plugins.outputs import PROMPT
from lmms_eval_plugins.settings import RunSettings
from tgv_kv_harness import CLONE

SCHEMA = 2
"""Version of a result file. Before 2, nothing in it said which prompts were scored."""
_RESAMPLES, _SEED, _CHUNK = 10_000, 0, 250
_UNJUDGED, _ROUNDING = "unjudged", 1e-6
Samples = list[dict[str, Any]]


def task_result(run: RunSettings, label: str, processes: int, results: dict[str, Any], task: str) -> dict[str, Any]:
    """The content of `result.<task>.json`, but for what `scored` adds.

    Args:
        results: as lmms-eval returned them.
    """
    figures = session.current().figures[run.fingerprint][task]
    return {
        "schema": SCHEMA,
        "task": task,
        "label": label,
        **records.configuration(run, processes),
        "git_commit": git_commit(),
        "lmms_eval_date": results.get("date"),
        "max_new_tokens": _limit(results, task, run.max_new_tokens),
        **figures,
        "retention": {"nominal": run.kv.retention if run.kv else 1.0} | figures["retention"],
        "metrics": results["results"][task],
    }


def failed_run(run: RunSettings, label: str, processes: int) -> dict[str, Any]:
    """The content of `failed.json`: a configuration without a score, because samples failed.

    `tasks` gives, by task, how many samples were asked, how many of them failed, and the first one's reason.
    """
    now = session.current()
    tasks: dict[str, dict[str, Any]] = {}
    for key in sorted(now.used.get(run.fingerprint, set()), key=lambda key: (key.task, str(key.doc_id))):
        entry = tasks.setdefault(key.task, {"samples": 0, "failed": 0, "reason": None})
        entry["samples"] += 1
        if (run.fingerprint, key) in now.failed:
            entry["failed"] += 1
            entry["reason"] = entry["reason"] or now.failed[run.fingerprint, key]
    return {"schema": 1, "label": label, **records.configuration(run, processes), "tasks": tasks}


def scored(content: dict[str, Any], samples: Samples, full: Samples | None) -> dict[str, Any]:
    """A result with its comparison to the full cache and, where answers are judged, score and counts of those judged.

    Args:
        content: with `metrics` and `counts`; not changed.
    """
    entries = [sample[scoring.METRIC] for sample in samples if isinstance(sample.get(scoring.METRIC), dict)]
    if entries:
        scores = [entry["score"] for entry in entries if "score" in entry]
        error = float(np.std(scores, ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else "N/A"
        mine = {"": scoring.aggregate(entries), "_stderr": error, "_stderr_clt": error}
        new = {f"{scoring.METRIC}{ending}": value for ending, value in mine.items()}
        metrics = {key: new.get(key.split(",")[0], value) for key, value in content["metrics"].items()}
        counts = content["counts"] | scoring.counts(entries)
        content = content | {"metrics": metrics, "counts": counts, "judge": judge_of(entries)}
    return content | {"difference_to_full": compare(content["metrics"], samples, full)}


def judge_of(entries: Samples) -> dict[str, Any]:
    """Who judged: `kind`, the model as its server names it, and the version of the question or of the offline rule."""
    kind = entries[0]["judge"]
    models = sorted({str(entry["verdict"]["model"]) for entry in entries if entry.get("verdict")})
    version = {"api": prompt.VERSION, "exact": exact.VERSION}.get(kind)
    return {"kind": kind, "model": ", ".join(models) or None, "prompt_version": version}


def compare(metrics: dict[str, Any], samples: Samples, full: Samples | None) -> dict[str, Any] | str:
    """Paired difference to the full cache over the samples that asked both the same, by metric; or why there is none.

    Answers that are unjudged on either side are left out. `score` is the mean of this run's own samples, where that is
    what the metric is.
    """
    if full is None:
        return "the full cache has no scores"
    reference = {sample["doc_id"]: sample for sample in full}
    both = [(sample, reference[sample["doc_id"]]) for sample in samples if sample["doc_id"] in reference]
    same = [(mine, other) for mine, other in both if mine.get(PROMPT) and mine[PROMPT] == other.get(PROMPT)]
    if not same:
        return f"the full cache was asked other {'prompts' if both else 'samples'}"
    found = {}
    for name, value in _values(metrics).items():
        pairs = [(_score(mine, name), _score(other, name)) for mine, other in same]
        pairs = [pair for pair in pairs if _UNJUDGED not in pair]
        if pairs and all(isinstance(score, int | float) for pair in pairs for score in pair):
            found[name] = paired_difference([float(a) - float(b) for a, b in pairs]) | _own(value, samples, name)
    return found or "no metric is a number per sample"


def _values(metrics: dict[str, Any]) -> dict[str, Any]:
    """The first value of every metric."""
    found: dict[str, Any] = {}
    for key, value in metrics.items():
        if "," in key and "_stderr" not in key:
            found.setdefault(key.split(",")[0], value)
    return found


def _own(value: Any, samples: Samples, metric: str) -> dict[str, float]:
    scores = [score for score in (_score(sample, metric) for sample in samples) if score != _UNJUDGED]
    if not isinstance(value, int | float) or not all(isinstance(score, int | float) for score in scores):
        return {}
    mean = sum(map(float, scores)) / len(scores)
    return {"score": mean} if abs(mean - value) <= _ROUNDING * max(1, abs(value)) else {}


def paired_difference(differences: Sequence[float]) -> dict[str, Any]:
    """Mean of per-sample differences with the 95 % interval of a percentile bootstrap; the same for the same input."""
    values, rng = np.asarray(differences), np.random.default_rng(_SEED)
    means = [
        values[rng.integers(0, len(values), (_CHUNK, len(values)))].mean(axis=1) for _ in range(_RESAMPLES // _CHUNK)
    ]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    interval = {"low": round(float(low), 6), "high": round(float(high), 6)}
    how = {"samples": len(values), "resamples": _RESAMPLES, "seed": _SEED}
    return {"mean": round(float(values.mean()), 6), **interval, **how}


@cache
def git_commit() -> str | None:
    """The commit of this package's clone, or None."""
    if CLONE is None:
        return None  # the folder of an installed package may lie in somebody else's clone
    command = ["git", "-C", str(CLONE), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _score(sample: dict[str, Any], metric: str) -> Any:
    value = sample.get(metric)
    return value.get("score", _UNJUDGED) if metric == scoring.METRIC and isinstance(value, dict) else value


def _limit(results: dict[str, Any], task: str, cap: int | None) -> int | None:
    """New tokens that an answer may have: the smaller one of the task's limit and `MAX_GENERATED_TOKENS`."""
    given = (results.get("configs", {}).get(task, {}).get("generation_kwargs") or {}).get("max_new_tokens")
    return min((limit for limit in (given, cap) if isinstance(limit, int)), default=None)

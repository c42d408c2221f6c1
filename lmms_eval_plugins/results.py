"""One result file per task and configuration: lmms-eval's metrics, and what is needed to trust and compare them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lmms_eval_plugins import records, session, store
from lmms_eval_plugins.settings import RunSettings

SCHEMA = 1
_RESAMPLES, _SEED, _CHUNK = 10_000, 0, 250
Samples = list[dict[str, Any]]


def task_result(
    run: RunSettings, label: str, processes: int, results: dict[str, Any], task: str, samples: Samples, since: float
) -> dict[str, Any]:
    """The content of `result.<task>.json`, but for the comparison.

    Args:
        results: as lmms-eval returned them. samples: lmms-eval's own of this task. since: when the run started.
    """
    used = session.current().used.get(run.fingerprint, set())
    found = store.newest_records(records.base_dir() / run.fingerprint)
    mine = [record for key, record in found.items() if key in used and key.task == task]
    scored = {sample["doc_id"] for sample in samples}
    done = [r for r in mine if r["doc_id"] in scored and r["status"] == "ok"]
    failed = [r for r in mine if r["status"] == "failed" and r["time"] >= since]
    proofs = [r["eviction"] for r in done if r["eviction"]]
    return {
        "schema": SCHEMA,
        "task": task,
        "label": label,
        **records.configuration(run, processes),
        "git_commit": git_commit(),
        "lmms_eval_date": results.get("date"),
        "counts": {
            "samples": len(scored) + len(failed),
            "failed": len(failed),
            "single_token_answers": sum(r["answer_tokens"] <= 1 for r in done),
        },
        "retention": {"nominal": run.kv.retention if run.kv else 1.0}
        | _spread([p["retention_achieved"] for p in proofs]),
        "means": {
            "answer_tokens": _mean([r["answer_tokens"] for r in done]),
            "prompt_tokens": _mean([p["prompt_tokens"] for p in proofs]),
            "kv_bytes_full": _mean([p["kv_bytes_full"] for p in proofs]),
            "kv_bytes_kept": _mean([p["kv_bytes_kept"] for p in proofs]),
        },
        "metrics": results["results"][task],
    }


def compare(metrics: dict[str, Any], samples: Samples, full: Samples | None) -> dict[str, Any] | str:
    """Paired difference to the full cache over the samples that both have, by metric; or why there is none."""
    if full is None:
        return "the full cache has no scores"
    reference = {sample["doc_id"]: sample for sample in full}
    both = [(sample, reference[sample["doc_id"]]) for sample in samples if sample["doc_id"] in reference]
    found = {}
    for name in dict.fromkeys(key.split(",")[0] for key in metrics if "," in key and "_stderr" not in key):
        pairs = [(mine.get(name), other.get(name)) for mine, other in both]
        if pairs and all(isinstance(score, int | float) for pair in pairs for score in pair):
            found[name] = paired_difference([float(a) - float(b) for a, b in pairs])
    return found or "no metric is a number per sample"


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
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    return {"mean": _mean(values), "min": min(values, default=None), "max": max(values, default=None)}

"""One configuration's result files: this project's result.<task>.json, or lmms-eval's own and the records."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pandas as pd

from . import asked
from .errors import ResultsError
from .names import main_metric
from .records import configuration, records_folder, records_of

SCHEMAS = (1, 2)
JUDGED_METRIC = "videott_open_ended_score"
NAN = float("nan")
_MOST = 1e15  # of any figure; what is above it, or infinite, is damage
_TEXTS = ("fingerprint", "model", "checkpoint", "method", "variant", "decode", "task", "metric", "date")
_COUNTS = ("samples", "failed", "unjudged", "single_token", "records_missing")
_ROUNDING = 1e-5


def read_result(path: Path) -> dict[str, Any]:
    """The row of a result file.

    Raises:
        ResultsError: it is of an unknown version, or not what it should be.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ResultsError(f"{path} is not readable: {error}; run again") from error
    version = content.get("schema") if isinstance(content, dict) else None
    if version not in SCHEMAS:
        raise ResultsError(f"{path}: version {version!r} of a result file is unknown, known: {SCHEMAS[-1]}")
    try:
        return _typed(_row(path, content))
    except (LookupError, TypeError, AttributeError) as error:
        raise ResultsError(f"{path}: {error} is missing or not as expected; run again") from error


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    """The row itself, if everything that is counted with or looked up is of its kind.

    Raises:
        TypeError: which value is not.
    """
    for name in _TEXTS:
        if not isinstance(row[name], str) or not row[name].isprintable():
            raise TypeError(f"{name}={row[name]!r:.60}")
    for name in _COUNTS:
        if isinstance(row[name], bool) or not isinstance(row[name], int) or row[name] < 0:
            raise TypeError(f"{name}={row[name]!r:.60}")
    if not 0 < _number(row["retention"]) <= 1:
        raise TypeError(f"retention={row['retention']!r:.60}")
    return row


def _row(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    metric, score, stderr = _metric(content["metrics"])
    difference = content["difference_to_full"]
    difference = difference.get(metric, {}) if isinstance(difference, dict) else {}
    _check_score(path, metric, score, difference)
    said = path.parent / content["records"] if content.get("records") else None
    return _settings(content) | {
        "run": str(path.parent),
        "path": str(path),
        "records": str(records_folder(path.parent, content["fingerprint"], said) or ""),
        "task": content["task"],
        "metric": metric,
        "score": score,
        "stderr": stderr,
        "difference": _number(difference.get("mean")),
        "low": _number(difference.get("low")),
        "high": _number(difference.get("high")),
        "judge": _judge(content.get("judge")),
        "max_new_tokens": content.get("max_new_tokens") or 0,
        "date": content["lmms_eval_date"] or "",
        "judged": content["counts"].get("judged"),
        "unjudged": content["counts"].get("unjudged") or 0,
        **_figures(content),
    }


def _figures(content: dict[str, Any]) -> dict[str, Any]:
    """What stands beside a score, of the very samples that were scored."""
    means, counts = content["means"], content["counts"]
    return {
        "samples": counts["samples"],
        "failed": counts["failed"],
        "records_missing": counts.get("records_missing") or 0,
        "single_token": counts["single_token_answers"],
        "answer_tokens": _number(means["answer_tokens"]),
        "achieved": _number(content["retention"]["mean"]),
        "kv_bytes": _number(means["kv_bytes_kept"]),
        "kv_bytes_full": _number(means["kv_bytes_full"]),
        **asked.of_result(content.get("prompts")),
    }


def _check_score(path: Path, metric: str, score: float, difference: dict[str, Any]) -> None:
    """Refuses a score that is not the mean of its samples, if the file says that mean."""
    own = _number(difference.get("score"))
    if abs(own - score) > _ROUNDING * max(1, abs(own)):  # never of NaN
        raise ResultsError(
            f"{path}: {metric} is {score:g}, but the mean of its samples is {own:g}: it was changed after the run; "
            "run again"
        )


def _settings(content: dict[str, Any]) -> dict[str, Any]:
    """What ran, from a result file or a `config.json`."""
    kv = content["config"] or {"method": "stock", "variant": "paper", "decode": "append", "retention": 1.0}
    return {
        "fingerprint": content["fingerprint"],
        "full_fingerprint": str(content.get("full_fingerprint") or ""),
        "model": kv.get("model_type") or content.get("row") or Path(content["model"]).name,
        "checkpoint": f"{content['model']}@{content['revision']}",
        **{name: kv[name] for name in ("method", "variant", "decode", "retention")},
        "max_new_tokens": kv.get("max_new_tokens") or 0,
        "cap": kv.get("max_new_tokens") or 0,
        "wrapper": content["wrapper"],
        "dtype": content["dtype"],
        "image_max_tokens": content["image_max_tokens"] or 0,
        "vision_aspect_ratio": content["vision_aspect_ratio"] or "",
        "attn_implementation": content["attn_implementation"],
        "lmms_eval_model": content["lmms_eval_model"],
        "device": content["device"],
    }


def score_files(run: Path) -> list[Path]:
    """What plain `-m lmms_eval` calls wrote, the newest last.

    Their names begin with a date; the `submissions/*_results.json` that tasks write for their own servers do not.
    """
    return sorted(run.glob("*/[0-9]*_results.json"), key=lambda path: (path.stat().st_mtime, path.name))


def read_single_run(run: Path, path: Path) -> list[dict[str, Any]]:
    """The rows of a plain `-m lmms_eval` call: its scores, and the records of the same fingerprint.

    Raises:
        ResultsError: there are no such records, or the file is not what it should be.
    """
    try:
        return _single_rows(run, path)
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        if isinstance(error, ResultsError):
            raise
        raise ResultsError(f"{path}: {error} is missing or not as expected; run again") from error


def _single_rows(run: Path, path: Path) -> list[dict[str, Any]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    folder = _records(run, path, content)
    settings = _settings(configuration(folder))
    base = settings | {"run": str(run), "path": str(path), "date": content.get("date") or path.name}
    base["records"] = str(folder)
    told = (content.get("kv") or {}).get("tasks") or _told_by_records(path, content, folder)
    rows = []
    for task, figures in told.items():
        metric, score, stderr = _metric(content["results"][task])
        row = base | {"task": task, "metric": metric, "score": score, "stderr": stderr} | _figures(figures)
        row |= _judging(metric, content.get("judge", {}).get(task), row["samples"])
        rows.append(_typed(row) | dict.fromkeys(("difference", "low", "high"), NAN))
    return rows


def _told_by_records(path: Path, content: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """The figures of a file that has none: of an older version. All records of a task have to be its own."""
    found = {}
    for task, group in records_of(folder).groupby("task"):
        if task not in content["results"]:
            continue  # of another call with the same configuration
        samples = content.get("n-samples", {}).get(task, {}).get("effective", len(group))
        if samples != len(group):
            why = f"{samples} samples of {task} were asked, but its records are of {len(group)}"
            raise ResultsError(f"{path}: {why}, so nothing says which; run it again, its answers are in the store")
        found[str(task)] = _means(group)
    return found


def _records(run: Path, path: Path, content: dict[str, Any]) -> Path:
    """Its folder of records; files of before `kv` name the fingerprint only."""
    named = re.search(r"kv_fingerprint=([\w-]+)", str(content["config"]["model_args"]))
    ours = content.get("kv") or {"fingerprint": named[1] if named else None, "records": ""}
    if ours["fingerprint"] is None:
        raise ResultsError(f"{path} is of a model that this project does not serve, so nothing says what was evicted")
    said = path.parent / ours["records"] if ours["records"] else None
    folder = records_folder(run, ours["fingerprint"], said)
    if folder is None:
        places = f"{os.path.normpath(said)} nor in {run}" if said else f"in {run} nor in {run.parent / 'records'}"
        raise ResultsError(f"{path}: its per-sample records are neither {places}; copy {ours['fingerprint']} there")
    return folder


def _judging(metric: str, judge: dict[str, Any] | None, samples: int) -> dict[str, Any]:
    """What `python -m lmms_eval_plugins.judge` says about a run that was started alone."""
    if judge is None:
        unknown = samples if metric == JUDGED_METRIC else 0
        return {"judged": None, "unjudged": unknown, "judge": ""}
    return {"judged": judge["judged"], "unjudged": judge["unjudged"], "judge": _judge(judge)}


def _means(group: pd.DataFrame) -> dict[str, Any]:
    done = group[group["status"] == "ok"]
    proofs = pd.DataFrame([proof for proof in done["eviction"] if proof])
    means = {name: None if proofs.empty else proofs[name].mean() for name in ("kv_bytes_kept", "kv_bytes_full")}
    failed, short = len(group) - len(done), int((done["answer_tokens"] <= 1).sum())
    return {
        "counts": {"samples": len(group), "failed": failed, "single_token_answers": short},
        "retention": {"mean": None if proofs.empty else proofs["retention_achieved"].mean()},
        "means": means | {"answer_tokens": done["answer_tokens"].mean()},
        "prompts": asked.of_records(done),
    }


def _judge(judge: dict[str, Any] | None) -> str:
    return "" if judge is None else "/".join(str(judge[key]) for key in ("kind", "model", "prompt_version"))


def _metric(metrics: dict[str, Any]) -> tuple[str, float, float]:
    """Name, value and standard error of a task's main metric; NaN where lmms-eval gives none."""
    names = [key for key in metrics if "," in key and "_stderr" not in key]
    if not names:
        raise LookupError("a metric")
    key = main_metric([key.split(",")[0] for key in names])
    full = next(name for name in names if name.split(",")[0] == key)
    spread = _number(metrics.get(full.replace(",", "_stderr,")))
    return key, _number(metrics[full]), spread if spread >= 0 else NAN


def _number(value: Any) -> float:
    real = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST
    return float(value) if real else NAN

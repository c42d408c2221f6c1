"""Result folders -> one tidy table: a row per task and configuration."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd


class ResultsError(ValueError):
    """A results folder cannot be read as it stands; the message names the file and says what to do."""


def load_runs(folder: Path) -> pd.DataFrame:
    """Read every run below ``folder``: one sub-folder each, as the scripts lay them out.

    Returns:
        Columns run, method, variant, decode, name (the three in one), retention, task, metric, score, stderr, samples,
        failed, achieved (mean share of prompt entries kept), kv_bytes (mean bytes kept per sample), answer_tokens
        (mean); sorted by method, name and falling retention.

    Raises:
        ResultsError: nothing to read, or a run without scores or records.
    """
    runs = [path for path in sorted(folder.glob("*")) if path.is_dir() and path.name != "records"]
    rows = [row for run in runs for row in _read_run(run)]
    if not rows:
        raise ResultsError(f"{folder}: no finished run in here; bash scripts/quickstart.sh makes some")
    table = pd.DataFrame(rows)
    table["name"] = [_name(*parts) for parts in zip(table["method"], table["variant"], table["decode"])]
    return table.sort_values(["method", "name", "retention", "task"], ascending=[True, True, False, True])


def _name(method: str, variant: str, decode: str) -> str:
    """What tells a configuration from others at the same budget: `tgv_kv (official, evict)`."""
    parts = [variant] * (variant != "paper") + [decode] * (decode != "append")
    return f"{method} ({', '.join(parts)})" if parts else method


def _read_run(run: Path) -> list[dict[str, Any]]:
    """One row per task; from the result files of a sweep if there are any, else from lmms-eval's and the records."""
    files = sorted(run.glob("result.*.json"))
    return [_read_result(run, path) for path in files] if files else _read_single_run(run)


def _read_result(run: Path, path: Path) -> dict[str, Any]:
    result = json.loads(path.read_text(encoding="utf-8"))
    metric, score, stderr = _metric(result["metrics"])
    means, counts = result["means"], result["counts"]
    known = {key: result["config"][key] for key in ("method", "variant", "decode", "retention")}
    return {
        "run": run.name,
        **known,
        "task": result["task"],
        "metric": metric,
        "score": score,
        "stderr": stderr,
        "samples": counts["samples"],
        "failed": counts["failed"],
        "answer_tokens": means["answer_tokens"],
        "achieved": result["retention"]["mean"],
        "kv_bytes": means["kv_bytes_kept"],
    }


def _read_single_run(run: Path) -> list[dict[str, Any]]:
    scores = sorted(run.rglob("*_results.json"), key=lambda path: path.stat().st_mtime)
    if not scores:
        raise ResultsError(f"{run}: no result file; run it again")
    content = json.loads(scores[-1].read_text())
    found = re.search(r"kv_fingerprint=([\w-]+)", str(content["config"]["model_args"]))
    folders = [base / found[1] for base in (run, run.parent / "records") if found and (base / found[1]).is_dir()]
    if not folders:
        raise ResultsError(f"{scores[-1]}: its per-sample records are neither in {run} nor in {run.parent / 'records'}")
    config = json.loads((folders[0] / "config.json").read_text())
    records, results = _records(folders[0]), content["results"]
    kv = config["config"] or {"method": "stock", "variant": "paper", "decode": "append", "retention": 1.0}
    base = {"run": run.name} | {key: kv[key] for key in ("method", "variant", "decode", "retention")}
    rows = []
    for task, group in records.groupby("task"):
        if task not in results:
            raise ResultsError(f"{scores[-1]}: no score of {task}, though it has records")
        metric, score, stderr = _metric(results[task])
        done = group[group["status"] == "ok"]
        rows.append(
            base
            | {"task": task, "metric": metric, "score": score, "stderr": stderr, "samples": len(group)}
            | {"failed": len(group) - len(done), "answer_tokens": done["answer_tokens"].mean()}
            | _eviction_means(done)
        )
    return rows


def _records(folder: Path) -> pd.DataFrame:
    """All per-sample records of a run, the newest of each sample; a line torn by a crash is dropped."""
    records = []
    for path in sorted(folder.glob("records.rank*.jsonl")):
        for line in path.read_text(encoding="utf-8").split("\n"):
            with suppress(ValueError):
                records.append(json.loads(line))
    records.sort(key=lambda record: record.get("time", 0))
    if not records:
        raise ResultsError(f"{folder}: no per-sample records")
    return pd.DataFrame(records).drop_duplicates(["task", "doc_id"], keep="last")


def _metric(result: dict[str, Any]) -> tuple[str, float, float]:
    """Name, value and standard error of the first metric lmms-eval reports for a task."""
    names = [
        key for key, value in result.items() if "," in key and "_stderr" not in key and isinstance(value, float | int)
    ]
    name, filter_name = names[0].split(",")
    stderr = result.get(f"{name}_stderr,{filter_name}")
    return name, float(result[names[0]]), float(stderr) if isinstance(stderr, float | int) else float("nan")


def _eviction_means(done: pd.DataFrame) -> dict[str, float]:
    proofs = pd.DataFrame([proof for proof in done["eviction"] if proof])
    if proofs.empty:
        return {"achieved": float("nan"), "kv_bytes": float("nan")}
    return {"achieved": proofs["retention_achieved"].mean(), "kv_bytes": proofs["kv_bytes_kept"].mean()}

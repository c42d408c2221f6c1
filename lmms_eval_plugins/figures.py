"""What a run can say of each task beside its score: which prompts were scored, and means of their records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from lmms_eval_plugins.store import Key

Record = dict[str, Any]


def by_task(asked: Iterable[Key], failed: Iterable[Key], records: Mapping[Key, Record]) -> dict[str, dict[str, Any]]:
    """By task: `counts`, `retention`, `means` and `prompts` of the samples that were asked for.

    Args:
        asked: of all processes. failed: those of them without an answer.
        records: of all processes, as far as their files are in one folder; means are None if one is missing.
    """
    tasks: dict[str, list[Key]] = {}
    for key in sorted(asked, key=lambda key: (key.task, str(key.doc_id).zfill(12), str(key.prompt_hash), key.repeat)):
        tasks.setdefault(key.task, []).append(key)
    without = set(failed)
    return {
        task: _of_task([key for key in keys if key not in without], [key for key in keys if key in without], records)
        for task, keys in tasks.items()
    }


def _of_task(scored: list[Key], failed: list[Key], records: Mapping[Key, Record]) -> dict[str, Any]:
    done = [records[key] for key in scored if key in records and records[key]["status"] == "ok"]
    missing = len(scored) - len(done)
    proofs = [record["eviction"] for record in done if record["eviction"] and not missing]
    told = done if not missing else []
    return {
        "counts": {
            "samples": len({key.doc_id for key in scored}) + len(failed),
            "failed": len(failed),
            "single_token_answers": sum(record["answer_tokens"] <= 1 for record in told),
            **({"records_missing": missing} if missing else {}),
        },
        "retention": _spread([proof["retention_achieved"] for proof in proofs]),
        "means": {
            "answer_tokens": _mean([record["answer_tokens"] for record in told]),
            **{
                name: _mean([proof[name] for proof in proofs])
                for name in ("prompt_tokens", "kv_bytes_full", "kv_bytes_kept")
            },
        },
        "prompts": prompts(scored),
    }


def prompts(scored: Iterable[Key]) -> dict[str, str]:
    """By document: the hash of its prompt, or several with a space between them."""
    found: dict[str, str] = {}
    for key in scored:
        before = found.get(str(key.doc_id))
        found[str(key.doc_id)] = f"{before} {key.prompt_hash}" if before else str(key.prompt_hash)
    return found


def missing_records(figures: Mapping[str, Mapping[str, Any]], folder: Any) -> str:
    """A line on records that are not where they should be; '' if all are there."""
    missing = {task: one["counts"].get("records_missing", 0) for task, one in figures.items()}
    if not any(missing.values()):
        return ""
    counts = ", ".join(
        f"{count} of {figures[task]['counts']['samples']} samples of {task}" for task, count in missing.items() if count
    )
    return (
        f"records of {counts} are not in {folder}, so there are no means of them: give KV_RECORDS_DIR a folder that "
        "all machines see, copy the records.rank*.jsonl files into it, and run the same command again"
    )


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None  # the same whatever process wrote which record: exactly rounded


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    return {"mean": _mean(values), "min": min(values, default=None), "max": max(values, default=None)}

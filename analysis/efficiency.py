"""Table 4: KV memory per sample, and time per answer where it was measured one configuration per process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from . import asked
from .errors import ResultsError
from .names import model_name
from .numbers import number
from .paper import in_words, paper_numbers
from .records import records_of
from .runs import Results

_MIB = 2**20


def seconds_per_answer(scores: pd.DataFrame) -> pd.Series:
    """Mean seconds of the answers that were timed on their own; NaN for a sweep, whose times are shared."""
    found: dict[tuple[str, str, str], float] = {}
    for (run, folder, fingerprint), mine in scores.groupby(["run", "records", "fingerprint"]):
        try:
            records = records_of(Path(folder)) if folder else None
        except ResultsError:
            records = None
        if records is None:
            continue
        records = asked.mine(records, mine)
        own = records[(records["status"] == "ok") & (records["timing"] == "own")]
        found |= {(run, fingerprint, task): mean for task, mean in own.groupby("task")["seconds"].mean().items()}
    keys = zip(scores["run"], scores["fingerprint"], scores["task"])
    return pd.Series([found.get(key, float("nan")) for key in keys], index=scores.index, dtype=float)


def tables(results: Results) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame, list[str]]]:
    """Per model: title, table as shown, the same in numbers, notes; means over tasks."""
    scores = results.scores.assign(seconds=seconds_per_answer(results.scores))
    for model, mine in scores.groupby("model"):
        groups = mine[mine["achieved"].notna()].groupby(["retention", "name"], sort=False)
        columns = ["achieved", "kv_bytes_full", "kv_bytes", "answer_tokens", "seconds"]
        numbers = groups[columns].mean().reset_index().sort_values("retention", ascending=False, kind="stable")
        numbers.insert(0, "model", model)
        if len(numbers) > 1:
            notes = ["Means per sample over tasks. Time: only answers that did not share their prefill or decoding."]
            paper = ", ".join(_paper())
            yield (
                f"Table 4: memory and time, {model_name(str(model))}",
                _shown(numbers),
                numbers,
                [*notes, f"Paper: {paper}."],
            )


def _shown(numbers: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "budget": [f"{100 * value:.3g} %" for value in numbers["retention"]],
            "method": numbers["name"],
            "kept": [f"{100 * value:.2f} %" for value in numbers["achieved"]],
            "KV full": [number(value / _MIB, ".3f", " MiB") for value in numbers["kv_bytes_full"]],
            "KV kept": [number(value / _MIB, ".3f", " MiB") for value in numbers["kv_bytes"]],
            "tokens / answer": [number(value, ".1f") for value in numbers["answer_tokens"]],
            "s / answer": ["not measured" if pd.isna(v) else f"{v:.3f}" for v in numbers["seconds"]],
        }
    ).reset_index(drop=True)


def _paper() -> Iterator[str]:
    for _, row in paper_numbers().query("table == '4'").iterrows():
        yield row["wording"] if row["status"] == "reported" else in_words(row)

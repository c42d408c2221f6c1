"""One configuration that was run in several ways: each has rows of its own, named by what tells them apart."""

from __future__ import annotations

import pandas as pd

_ROW = ["model", "name", "retention"]
_SETTINGS = {
    "checkpoint": "{}",
    "wrapper": "{} prompts",
    "dtype": "{}",
    "attn_implementation": "{}",
    "cap": "at most {} new tokens",
    "image_max_tokens": "at most {} image tokens",
    "vision_aspect_ratio": "{}",
}


def told_apart(scores: pd.DataFrame, left_out: list[str]) -> pd.DataFrame:
    """Scores with one row per cell.

    A model whose configurations ran with several settings is several models, `llava-7B [chat prompts]`; with the same
    settings but other code or arguments, the fingerprint of its full cache tells them apart. Of runs with one
    fingerprint the newest counts; where an older one was asked something else, `left_out` gets a line.
    """
    scores = _newest(scores, left_out)
    clashes = scores.groupby(_ROW)["fingerprint"].transform("nunique") > 1
    names = scores["model"].copy()
    for model, mine in scores.groupby("model"):
        if clashes[mine.index].any():
            names[mine.index] = [f"{model} [{words}]" for words in _words(mine, mine[clashes[mine.index]])]
    return scores.assign(model=names).sort_values("model", kind="stable", ignore_index=True)


def _newest(scores: pd.DataFrame, left_out: list[str]) -> pd.DataFrame:
    cell = [*_ROW, "task", "fingerprint"]
    by_date = scores.sort_values("date", kind="stable")
    kept = by_date.drop_duplicates(cell, keep="last")
    last = kept.set_index(cell)
    for row in by_date.drop(kept.index).to_dict("records"):
        newer = last.loc[tuple(row[name] for name in cell)]
        if row["prompts"] != newer["prompts"]:
            what = f"{row['samples']} samples of {row['task']}"
            left_out.append(f"{row['path']}: {what}, left out: {newer['path']} is newer, with {newer['samples']}")
    return kept.sort_index()


def _words(mine: pd.DataFrame, clashing: pd.DataFrame) -> pd.Series:
    """What is to be said of each row of a model so that no two clash."""
    groups = clashing.groupby(["name", "retention"])
    differing = [name for name in _SETTINGS if groups[name].nunique().gt(1).any()]
    words = pd.Series([[_SETTINGS[name].format(row[name]) for name in differing] for row in mine.to_dict("records")])
    words.index = mine.index
    labels = words.map(", ".join)
    if mine.assign(label=labels).groupby(["name", "retention", "label"])["fingerprint"].nunique().gt(1).any():
        code = mine["full_fingerprint"].where(mine["full_fingerprint"] != "", mine["fingerprint"])
        labels = pd.Series([", ".join([*said, own]) for said, own in zip(words, code)], index=mine.index)
    return labels

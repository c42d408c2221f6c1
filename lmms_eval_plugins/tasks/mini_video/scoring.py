"""Prompts of the mini video tasks, and the score of the multiple-choice one; open answers are scored by the judge."""

import re
from typing import Any

from lmms_eval_plugins.tasks.mini_video import dataset

_LETTER = re.compile(rf"(?:^|answer is|option)\W*([{dataset.LETTERS}])\b(?! [a-z])", re.IGNORECASE)


def doc_to_visual(doc: dict[str, Any]) -> list[str]:
    return [str(dataset.video_path(doc["video_id"]))]


def choice_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Whether the first letter that an answer gives is the right one ("B", "(B)", "the answer is B.")."""
    found = _LETTER.search(results[0].strip())
    return {"exact_match": float(found is not None and found[1].upper() == doc["letter"])}

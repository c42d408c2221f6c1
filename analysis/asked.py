"""Which prompts a score is of: the document and the hash of every prompt that was scored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

UNKNOWN = ""
"""Digest of a result that does not say what was asked: one of an older version."""


def of_result(prompts: Any) -> dict[str, Any]:
    """The columns `asked` (document to hash; None if the file does not say) and `prompts` (a digest of it).

    Raises:
        TypeError: it is something else.
    """
    if prompts is None:
        return {"asked": None, "prompts": UNKNOWN}
    if not isinstance(prompts, dict) or not all(isinstance(value, str) for value in prompts.values()):
        raise TypeError(f"prompts={prompts!r:.60}")
    text = json.dumps(prompts, sort_keys=True)
    return {"asked": prompts, "prompts": hashlib.sha256(text.encode()).hexdigest()[:16]}


def of_records(done: pd.DataFrame) -> dict[str, str]:
    """The same of a task's answered records."""
    found: dict[str, str] = {}
    for doc, prompt in sorted(zip(map(str, done["doc_id"]), map(str, done["prompt_hash"]))):
        found[doc] = f"{found[doc]} {prompt}" if doc in found else prompt
    return found


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """What two scores were asked differently, as a table says it; '' if every prompt is the same."""
    if UNKNOWN in (one["prompts"], other["prompts"]):
        return "prompts not noted, run again"
    if one["prompts"] == other["prompts"]:
        return ""
    return "other samples" if set(one["asked"]) != set(other["asked"]) else "other prompts"


def mine(records: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """The records of the very prompts that scores of one configuration are of; all of a task that does not say.

    Args:
        scores: rows of `runs.load` of one run.
    """
    asked = {task: known for task, known in zip(scores["task"], scores["asked"]) if known is not None}
    keep = [
        task not in asked or str(prompt) in asked[task].get(str(doc), "").split()
        for task, doc, prompt in zip(records["task"], records["doc_id"], records["prompt_hash"])
    ]
    return records[keep]

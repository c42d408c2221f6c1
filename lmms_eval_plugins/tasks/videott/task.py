"""Prompts, videos and limits of Video-TT; `choice_results` scores its multiple-choice part."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any

import lmms_eval

from kv_caches.config import max_generated_tokens

STOCK_LIMIT = 50
_FOLDER = Path("video-tt") / "Benchmark-AllVideos-LQ"
_ENDINGS = (".mp4", ".MP4", ".mkv")


def __getattr__(name: str) -> int:
    """`open_ended_limit`: `MAX_GENERATED_TOKENS` where it is set, which may be above the stock task's 50."""
    if name != "open_ended_limit":
        raise AttributeError(name)
    return max_generated_tokens() or STOCK_LIMIT


def doc_to_text(doc: dict[str, Any], lmms_eval_specific_kwargs: dict[str, Any] | None = None) -> str:
    """As the stock task with its default prompts, which are empty."""
    return f"\n{doc['question']}\n{doc['question_prompt']}\n"


def doc_to_visual(doc: dict[str, Any]) -> list[str]:
    """The video where lmms-eval unpacks it.

    Raises:
        FileNotFoundError: it is not there; the sample counts as failed.
    """
    folder = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser() / _FOLDER
    for ending in _ENDINGS:
        path = folder / f"{doc['video_id']}{ending}"
        if path.exists():
            return [str(path)]
    raise FileNotFoundError(f"the video {doc['video_id']} ({', '.join(_ENDINGS)}) is not in {folder}")


def choice_results(doc: dict[str, Any], results: Sequence[str]) -> dict[str, float]:
    """100 if the stock task reads the right letter from the answer, else 0."""
    return {"videott_perception_score": 100.0 * (stock().extract_characters_regex(results[0]) == doc["answer"])}


@cache
def stock() -> Any:
    """lmms-eval's own module; its folder's name has a hyphen, so no import statement can name it."""
    path = Path(lmms_eval.__file__).parent / "tasks" / "video-tt" / "utils.py"
    spec = util.spec_from_file_location("lmms_eval_video_tt_utils", path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

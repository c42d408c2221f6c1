"""Prompts and scores of the mini tasks; the scores are lmms-eval's own but for the caption's object F1."""

import itertools
import re
from typing import Any

from lmms_eval.tasks._task_utils.vqa_eval_metric import EvalAIAnswerProcessor
from lmms_eval.tasks.chartqa.utils import relaxed_correctness

from tiny_vlm.glyphs import SHAPES

_WORDS = re.compile(r"[a-z]+")


def doc_to_visual(doc: dict[str, Any]) -> list[Any]:
    return [doc["image"].convert("RGB")]


def chart_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Relaxed accuracy as in ChartQA: numbers within 5 %, everything else exactly."""
    return {"relaxed_accuracy": float(any(relaxed_correctness(results[0], answer) for answer in doc["answers"]))}


def scene_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Exact match after the normalisation of VQA accuracy (case, articles, punctuation, number words)."""
    normalise = EvalAIAnswerProcessor()
    return {"exact_match": float(normalise(results[0]) in {normalise(answer) for answer in doc["answers"]})}


def caption_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    return {"object_f1": object_f1(results[0], doc["objects"])}


def object_f1(caption: str, objects: list[str]) -> float:
    """F1 between the objects of a picture and those that a caption names.

    A caption names an object wherever it names a shape; with the word before, it has to be the colour and shape of an
    object ("red circle"). Naming an object twice counts as one right and one wrong.

    Args:
        objects: such as ["red circle", "blue star"]; never empty.
    """
    words = _WORDS.findall(caption.lower())
    named = [f"{first} {second}" for first, second in itertools.pairwise(words) if second in SHAPES]
    missing = list(objects)
    right = 0
    for name in named:
        if name in missing:
            missing.remove(name)
            right += 1
    return 2 * right / (len(named) + len(objects))

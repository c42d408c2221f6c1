"""The question that a judge model is asked, and how its reply is read.

The wording is that of lmms-eval 0.7.3, `tasks/video-tt/gpt_utils.py`, `get_eval` (MIT licence), to the letter, so that
scores are comparable with those of the stock task.
"""

from __future__ import annotations

import ast
import json
import math
import re
from contextlib import suppress
from typing import Any

VERSION = "videott-lmms-eval-0.7.3"
MAX_TOKENS, TEMPERATURE = 100, 0
LOWEST, HIGHEST = 0, 5

_PROMPT = (
    "You are an intelligent chatbot designed for evaluating the correctness of generative outputs for question-answer "
    "pairs. Your task is to compare the predicted answer with the correct answer and determine if they match "
    "meaningfully. Here's how you can accomplish the task:"
    "------"
    "##INSTRUCTIONS: "
    "- Focus on the meaningful match between the predicted answer and the correct answer.\n"
    "- Consider synonyms or paraphrases as valid matches.\n"
    "- Evaluate the correctness of the prediction compared to the answer."
    "Please evaluate the following video-based question-answer pair:\n\n"
    "Question: {question}\n"
    "Correct Answer: {answer}\n"
    "Predicted Answer: {prediction}\n\n"
    "Provide your evaluation only as a yes/no and score where the score is an integer value between 0 and 5, with 5 "
    "indicating the highest meaningful match. "
    "Please generate the response in the form of a Python dictionary string with keys 'pred' and 'score', where value "
    "of 'pred' is  a string of 'yes' or 'no' and value of 'score' is in INTEGER, not STRING."
    "DO NOT PROVIDE ANY OTHER OUTPUT TEXT OR EXPLANATION. Only provide the Python dictionary string. "
    "For example, your response should look like this: {{'pred': 'yes', 'score': 4.8}}."
)


class Unreadable(ValueError):
    """A reply that holds no verdict; the message says why."""


def messages(entry: dict[str, Any]) -> list[dict[str, str]]:
    """What is sent for an entry with `question`, `answer` and `prediction`."""
    fields = {name: entry[name] for name in ("question", "answer", "prediction")}
    return [{"role": "user", "content": _PROMPT.format(**fields)}]


def read(reply: str) -> dict[str, Any]:
    """`score` (0 to 5) and `pred` of a reply; prose around the dictionary is forgiven, doubt is not.

    Raises:
        Unreadable: no dictionary, several that differ, or no number on the scale in it.
    """
    found: list[dict[str, Any]] = []
    for text in re.findall(r"\{[^{}]*\}", reply):
        verdict = _dictionary(text)
        if verdict is not None and "score" in verdict and verdict not in found:
            found.append(verdict)
    if len(found) != 1:
        raise Unreadable(f"{len(found) or 'no'} dictionaries with a score in the reply")
    try:
        return {"score": _score(found[0]["score"]), "pred": str(found[0].get("pred"))}
    except (OverflowError, ValueError) as error:  # a number of thousands of digits
        raise error if isinstance(error, Unreadable) else Unreadable("a number in the reply is too long") from error


def _dictionary(text: str) -> dict[str, Any] | None:
    for parse in (ast.literal_eval, json.loads):
        with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            value = parse(text)
            if isinstance(value, dict):
                return value
    return None


def _score(value: Any) -> float:
    """Stock takes a number in quotation marks too."""
    number = value
    if isinstance(value, str):
        with suppress(ValueError):
            number = float(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise Unreadable(f"the score {str(value)[:40]!r} is no number")
    if not LOWEST <= number <= HIGHEST:
        raise Unreadable(f"the score {number:g} is outside {LOWEST} to {HIGHEST}")
    return number

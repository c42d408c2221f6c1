"""Generation arguments, stop rules and the answer's text, the same for all model families."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from lmms_eval_plugins import generation

TASK_DELIMITER = "\n\n"
"""lmms-eval adds this stop string to every task that names none; its own wrappers do not stop there, nor do these."""

_CHARACTERS_PER_TOKEN = 16


@dataclass(frozen=True)
class Decoding:
    """How the answers of one batch are decoded.

    Attributes:
        arguments: for `model.generate`.
        until: strings that end an answer.
        eos: ids that end an answer.
        context: most tokens of a prompt with its answer, or None.
    """

    arguments: dict[str, Any]
    until: tuple[str, ...]
    eos: frozenset[int]
    context: int | None = None

    def room(self, prompt_tokens: int) -> int:
        """New tokens that a prompt of this length may get."""
        limit = self.arguments["max_new_tokens"]
        return limit if self.context is None else min(limit, self.context - prompt_tokens)

    def rooms(self, attention_mask: torch.Tensor) -> list[int]:
        """`room` of every prompt of a batch; mask is (B, N)."""
        return [self.room(tokens) for tokens in attention_mask.sum(dim=1).tolist()]

    @property
    def alone(self) -> bool:
        """Each sample has a pass of its own: what is drawn for it must not hang on the others of a batch."""
        return self.arguments["do_sample"]

    def criteria(self, tokenizer: Any, prompt_length: int) -> StoppingCriteriaList:
        """Stops a row at a stop string; beams are ranked by `generate` itself and only cut afterwards."""
        if not self.until or self.arguments["num_beams"] > 1:
            return StoppingCriteriaList()
        return StoppingCriteriaList([_Until(tokenizer, self.until, prompt_length)])


def plan(
    gen_kwargs: dict[str, Any],
    default_limit: int,
    cap: int | None,
    eos: frozenset[int],
    pad: int,
    context: int | None = None,
) -> Decoding:
    """Reads a task's generation arguments.

    Args:
        gen_kwargs: as the task gives them; not changed.
        default_limit: new tokens if the task names no limit.
        cap: `MAX_GENERATED_TOKENS`; the smaller limit counts.
        context: see `Decoding`.
    """
    limit, sampled = int(gen_kwargs.get("max_new_tokens") or default_limit), generation.samples(gen_kwargs)
    skipped = frozenset() if sampled else generation.SAMPLING
    arguments = {
        "max_new_tokens": limit if cap is None else min(limit, cap),
        "num_beams": int(gen_kwargs.get("num_beams") or 1),
        "do_sample": sampled,
        "eos_token_id": sorted(eos),
        "pad_token_id": pad,
        **dict.fromkeys(skipped & {"temperature", "top_p", "top_k"}),
        **{
            name: value
            for name, value in gen_kwargs.items()
            if name in generation.HONOURED - skipped
            if value is not None
        },
    }
    return Decoding(arguments, _until(gen_kwargs), eos, context)


def _until(gen_kwargs: dict[str, Any]) -> tuple[str, ...]:
    until = gen_kwargs.get("until") or ()
    until = (until,) if isinstance(until, str) else tuple(until)
    return tuple(text for text in until if text and text != TASK_DELIMITER)


def eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends an answer: those of the generation config and the tokenizer's own."""
    ids = model.generation_config.eos_token_id
    ids = [] if ids is None else [ids] if isinstance(ids, int) else list(ids)
    own = tokenizer.eos_token_id
    return frozenset(ids if own is None else [*ids, own])


@dataclass(frozen=True)
class Answer:
    """One decoded answer.

    Attributes:
        tokens: without padding and end token. generated: with the end token.
        stop_reason: eos, until, length (the limit on new tokens) or context (prompt and answer fill the model's).
        raw: the whole text, where only a part of it is the answer.
    """

    text: str
    tokens: int
    generated: int
    stop_reason: str
    raw: str | None = None


def read_answer(row: list[int], decoding: Decoding, tokenizer: Any, room: int) -> Answer:
    """Cuts a generated row at its end token, at its stop string, or where its room ends.

    Args:
        row: new token ids, possibly followed by padding.
        room: most new tokens of this row; others of its batch may have had more.
    """
    row = row[:room]
    ended = next((i for i, token in enumerate(row) if token in decoding.eos), None)
    ids = row if ended is None else row[:ended]
    text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    cut = min((at for at in map(text.find, decoding.until) if at >= 0), default=None)
    if cut is not None:
        ids = _without_padding(ids, decoding.arguments["pad_token_id"])
        return Answer(text[:cut], len(ids), len(ids), "until")
    generated = len(ids) + (ended is not None)
    full = "length" if room == decoding.arguments["max_new_tokens"] else "context"
    return Answer(text, len(ids), generated, full if ended is None else "eos")


def _without_padding(ids: list[int], pad: int) -> list[int]:
    end = len(ids)
    while end and ids[end - 1] == pad:
        end -= 1
    return ids[:end]


class _Until(StoppingCriteria):
    """Marks a row as done when its decoded end contains a stop string."""

    def __init__(self, tokenizer: Any, until: tuple[str, ...], prompt_length: int):
        self.tokenizer, self.until, self.prompt_length = tokenizer, until, prompt_length
        self.window = max(map(len, until)) + _CHARACTERS_PER_TOKEN

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        tails = input_ids[:, self.prompt_length :][:, -self.window :]
        texts = self.tokenizer.batch_decode(tails, skip_special_tokens=True)
        done = [any(stop in text for stop in self.until) for text in texts]
        return torch.tensor(done, dtype=torch.bool, device=input_ids.device)

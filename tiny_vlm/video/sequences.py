"""Training sequences: prompt, kept vision tokens and answer of each video, with targets and what to look at."""

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from tiny_vlm.video.batches import VideoBatch
from tiny_vlm.video.questions import LETTERS, SPACE, Asked, Piece
from tiny_vlm.video.world import CELLS, GRID, SECONDS

IGNORED = -100
HINTS = ("stamp", "previous", "asked", "evidence", "option", "letter", "present")
ANSWER_SHARE = 12
"""Answers of more tokens than this weigh as much as answers of this length."""


@dataclass
class Sequences:
    """Right-padded sequences of B videos.

    Attributes:
        rows: (B,) which videos of the batch.
        ids: (B, T) tokens.
        positions: (3, B, T) M-RoPE positions as if all 392 vision tokens were there.
        place: (B, T) index into the kept vision tokens of the video, -1 for text.
        targets: (B, T) next token where an answer token is predicted, else -100.
        weights: (B, T) of the targets.
        hints: for each of HINTS (B, T, T), which tokens to look at.
        letters: (B, T) letter of the option whose text a token belongs to, else -100.
    """

    rows: torch.Tensor
    ids: torch.Tensor
    positions: torch.Tensor
    place: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor
    hints: dict[str, torch.Tensor]
    letters: torch.Tensor


@dataclass
class _Line:
    """One sequence, not yet padded; hints are pairs (row, column)."""

    ids: list[int]
    positions: list[tuple[int, int, int]]
    place: list[int]
    first: int
    hints: dict[str, list[tuple[int, int]]]


class SequenceBuilder:
    """Lays videos out exactly as the chat template and the processor do."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, parts: int = 1):
        self.tokenizer = tokenizer
        self.vocabulary = tokenizer.get_vocab()
        self.parts = parts

    def build(self, batch: VideoBatch) -> list[Sequences]:
        """Returns `parts` groups of similar length, which wastes less padding than one."""
        lines = [
            self._line(asked, style, tokens.tolist())
            for asked, style, tokens in zip(batch.asked, batch.styles, batch.tokens, strict=True)
        ]
        order = np.argsort([len(line.ids) for line in lines], kind="stable")
        return [self._group(lines, rows) for rows in np.array_split(order, self.parts)]

    def _line(self, asked: Asked, style: str, kept: list[int]) -> _Line:
        line = _Line([], [], [], 0, {name: [] for name in HINTS})
        self._text(line, self._encode("<|im_start|>user <|vision_start|>"))
        where = self._video(line, kept)
        starts = [where[item.token(item.start)] for item in asked.world.items]
        line.hints["previous"] += zip(starts[1:], starts)
        self._text(line, self._encode("<|vision_end|>" + asked.lead(style)))
        core = len(line.ids)
        self._text(line, self._encode(asked.core(style)))
        options = len(line.ids)
        self._text(line, self._encode(asked.choices(style) + "<|im_end|><|im_start|>assistant"))
        line.first = len(line.ids) - 1
        pieces = asked.reply(style)
        self._text(line, [*(self.vocabulary[text] for text, _ in pieces), self.tokenizer.eos_token_id])
        keys = [i for i in range(core, options) if line.ids[i] in {self.vocabulary[key] for key in asked.keys}]
        self._answer_hints(line, pieces, where, keys)
        if style == "multiple_choice":
            self._option_hints(line, asked, options, where)
        return line

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _text(self, line: _Line, ids: list[int]) -> None:
        start = max(line.positions[-1]) + 1 if line.positions else 0
        line.ids += ids
        line.positions += [(start + i,) * 3 for i in range(len(ids))]
        line.place += [-1] * len(ids)

    def _video(self, line: _Line, kept: list[int]) -> dict[int, int]:
        """Adds time stamps and vision tokens; returns where each kept vision token is."""
        where = {}
        for second in range(SECONDS):
            stamp = len(line.ids)
            self._text(line, self._encode(f"<{second}.2 seconds><|vision_start|>"))
            start = line.positions[-1][0] + 1
            for place, token in enumerate(kept):
                if token // CELLS == second:
                    row, column = divmod(token % CELLS, GRID)
                    where[token] = len(line.ids)
                    line.hints["stamp"].append((len(line.ids), stamp))
                    line.ids.append(self.vocabulary["<|video_pad|>"])
                    line.positions.append((start, start + row, start + column))
                    line.place.append(place)
            line.ids.append(self.vocabulary["<|vision_end|>"])
            line.positions.append((start + GRID,) * 3)
            line.place.append(-1)
        return where

    def _answer_hints(self, line: _Line, pieces: list[Piece], where: dict[int, int], keys: list[int]) -> None:
        """What each answer token that shows something should be read from.

        In a description the key is the time: that of the event, or of the one before while it is not yet said.
        """
        times = [
            i + 1 for i, (text, _) in enumerate(pieces) if text == SPACE and i and pieces[i - 1][0] == SPACE + "at"
        ]
        for i, (_, shown) in enumerate(pieces):
            row = line.first + i
            line.hints["evidence"] += [(row, where[token]) for token in shown]
            said = [time for time in times if time < i]
            if shown and keys:
                line.hints["asked"] += [(row, key) for key in keys]
            elif shown and said:
                line.hints["asked"].append((row, line.first + 1 + said[-1]))

    def _option_hints(self, line: _Line, asked: Asked, start: int, where: dict[int, int]) -> None:
        """The text of each option looks at its letter, and the answer at the text of the right one.

        Where it is asked what is in the video, the right option looks there itself.
        """
        letters = [i for i in range(start, line.first) if line.ids[i] in self._letters()] + [line.first - 2]
        texts = [range(begin + 2, end) for begin, end in itertools.pairwise(letters)]
        for letter, text in zip(letters, texts):
            line.hints["letter"] += [(row, letter) for row in text]
        row = line.first + len(asked.reply("multiple_choice")) - 1
        line.hints["option"] += [(row, column) for column in texts[asked.correct]]
        if asked.topic == "describe":
            named = [item for item in asked.world.items if asked.options[asked.correct] == f"a {item.name}"]
            line.hints["present"] += [(texts[asked.correct][-1], where[item.token(item.start)]) for item in named]

    def _letters(self) -> list[int]:
        return [self.tokenizer(letter + ".")["input_ids"][0] for letter in LETTERS]

    def _group(self, lines: list[_Line], rows: np.ndarray) -> Sequences:
        length = max(len(lines[row].ids) for row in rows)
        shape = (len(rows), length)
        ids = np.full(shape, self.tokenizer.pad_token_id)
        positions = np.zeros((3, *shape), dtype=np.int64)
        place, targets = np.full(shape, -1), np.full(shape, IGNORED)
        weights = np.zeros(shape, dtype=np.float32)
        hints = {name: np.zeros((*shape, length), dtype=bool) for name in HINTS}
        for i, row in enumerate(rows):
            line = lines[row]
            end = len(line.ids)
            ids[i, :end], place[i, :end], positions[:, i, :end] = line.ids, line.place, np.array(line.positions).T
            targets[i, line.first : end - 1] = line.ids[line.first + 1 :]
            weights[i, line.first : end - 1] = min(1.0, ANSWER_SHARE / (end - 1 - line.first))
            for name, pairs in line.hints.items():
                if pairs:
                    hints[name][(i, *np.array(pairs).T)] = True
        letters = np.where(hints["letter"].any(-1), np.take_along_axis(ids, hints["letter"].argmax(-1), 1), IGNORED)
        tensors = (torch.from_numpy(array) for array in (rows, ids, positions, place, targets, weights))
        hint_tensors = {name: torch.from_numpy(array) for name, array in hints.items()}
        return Sequences(*tensors, hint_tensors, torch.from_numpy(letters))

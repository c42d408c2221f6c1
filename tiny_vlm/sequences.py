"""Training sequences: prompt, kept patches and answer of each page, with targets and evidence."""

from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from tiny_vlm.batches import PATCHES, PageBatch
from tiny_vlm.pages import Page
from tiny_vlm.processor import SPACE
from tiny_vlm.rng import Rng
from tiny_vlm.wording import SYSTEM

IGNORED = -100


@dataclass
class Sequences:
    """Right-padded sequences of B pages.

    Attributes:
        rows: (B,) which pages of the page batch.
        ids: (B, T) tokens.
        positions: (B, T) positions as if all 576 patches were there.
        patch: (B, T) index into the kept patches of the page, -1 for text.
        targets: (B, T) next token where an answer token is predicted, else -100.
        evidence: (B, T, T) which patches show the token that is predicted.
        asked: (B, T, T) for the same rows, which tokens of the question say what to look for.
    """

    rows: torch.Tensor
    ids: torch.Tensor
    positions: torch.Tensor
    patch: torch.Tensor
    targets: torch.Tensor
    evidence: torch.Tensor
    asked: torch.Tensor


class SequenceBuilder:
    """Lays pages out exactly as the chat template and the processor do."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, parts: int = 2):
        self.tokenizer = tokenizer
        self.vocabulary = tokenizer.get_vocab()
        self.image = self.vocabulary["<image>"]
        self.parts = parts
        self.prefixes = [[tokenizer.bos_token_id, *self._encode(system + " USER:")] for system in ("", *SYSTEM)]

    def build(self, batch: PageBatch) -> list[Sequences]:
        """Returns `parts` groups of similar length, which wastes less padding than one."""
        texts = [self._texts(page) for page in batch.pages]
        order = np.argsort([sum(map(len, text)) for text in texts], kind="stable")
        return [self._group(batch, texts, rows) for rows in np.array_split(order, self.parts)]

    def _texts(self, page: Page) -> tuple[list[int], list[int], list[int]]:
        """Tokens before the image, between image and answer, and of the answer."""
        rng = Rng(page.question + page.answer)
        prefix = self.prefixes[1 + rng.below(len(SYSTEM)) if rng.chance(30) else 0]
        answer = [self.vocabulary[text] for text, _ in page.pieces] + [self.tokenizer.eos_token_id]
        return prefix, self._encode(page.question + " ASSISTANT:"), answer

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _group(self, batch: PageBatch, texts: list[tuple[list[int], ...]], rows: np.ndarray) -> Sequences:
        count = batch.cells.shape[1]
        length = count + max(sum(map(len, texts[row])) for row in rows)
        shape = (len(rows), length)
        ids = np.full(shape, self.tokenizer.pad_token_id)
        positions, patch = np.zeros(shape, dtype=np.int64), np.full(shape, -1)
        targets = np.full(shape, IGNORED)
        evidence, asked = np.zeros((2, *shape, length), dtype=bool)
        for i, row in enumerate(rows):
            prefix, suffix, answer = texts[row]
            cells = batch.cells[row].numpy()
            image, after = len(prefix), len(prefix) + count
            ids[i, : after + len(suffix) + len(answer)] = prefix + [self.image] * count + suffix + answer
            positions[i, :image] = np.arange(image)
            positions[i, image:after] = image + cells
            positions[i, after:] = image + PATCHES + np.arange(length - after)
            patch[i, image:after] = np.arange(count)
            first = after + len(suffix) - 1
            targets[i, first : first + len(answer)] = answer
            for j, (_, shown) in enumerate(batch.pages[row].pieces):
                evidence[i, first + j, image + np.searchsorted(cells, shown)] = True
            keys = [self.vocabulary[SPACE + word] for word in batch.pages[row].asked]
            asked[i] = evidence[i].any(-1)[:, None] & np.isin(ids[i], keys) & (np.arange(length) <= first)
        tensors = (rows, ids, positions, patch, targets, evidence, asked)
        return Sequences(*(torch.from_numpy(np.asarray(array)) for array in tensors))

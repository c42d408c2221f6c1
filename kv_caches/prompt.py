"""Which prompt positions are vision and which are text, read from the token ids of one sample."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

_IMAGE_ID_NAMES = ("image_token_id", "image_token_index")
_VIDEO_ID_NAMES = ("video_token_id", "video_token_index")


@dataclass(frozen=True, eq=False)
class Prompt:
    """Token roles of one unpadded prompt.

    Attributes:
        is_vision: (N,) bool on the CPU. Image and video placeholders are vision, newline tokens that the processor
            expands under the image id included; everything else (markers, timestamps, question) is text.
        seed: hash of the sample's token ids: the same in any batch, on any machine.
        counted: (N,) bool, the vision tokens that the released TGV-KV code counts: those of one id. None: all.
    """

    is_vision: Tensor
    seed: int = 0
    counted: Tensor | None = None

    @property
    def length(self) -> int:
        """N, the number of prompt tokens."""
        return self.is_vision.shape[0]

    @cached_property
    def vision(self) -> Tensor:
        """(N_v,) positions of vision tokens, ascending."""
        return self.is_vision.nonzero().flatten()

    @cached_property
    def text(self) -> Tensor:
        """(N_t,) positions of text tokens, ascending."""
        return (~self.is_vision).nonzero().flatten()

    def generator(self, layer: int) -> torch.Generator:
        """Random numbers of one layer of this sample, for methods that draw; always on the CPU."""
        return torch.Generator().manual_seed((self.seed * 1_000_003 + layer) % (1 << 63))

    @property
    def official_block(self) -> tuple[int, int]:
        """The block [start, stop) that the released TGV-KV code takes for vision: first token of one id + their count.

        Right for one contiguous image only. Source: Danielement321/TGV-KV kv_caches/tgv_kv.py.
        """
        counted = self.vision if self.counted is None else self.counted.nonzero().flatten()
        start = int(counted[0])
        return start, start + counted.numel()


def counts_video(model_type: str | None) -> bool:
    """Whether the released TGV-KV code counts video tokens for this MODEL_TYPE, and not those of pictures."""
    return (model_type or "").endswith("-video")


def vision_token_ids(config: Any, model_type: str | None = None) -> tuple[int, ...]:
    """Placeholder ids named by a model's config, first the one that the released TGV-KV code counts: the image's, or
    the video's for ``*-video`` model types. Empty for a text-only model."""
    names = (_IMAGE_ID_NAMES, _VIDEO_ID_NAMES)
    ids = (
        getattr(config, name, None) for kind in (names[::-1] if counts_video(model_type) else names) for name in kind
    )
    return tuple(dict.fromkeys(int(i) for i in ids if i is not None))


def split_batch(input_ids: Tensor, attention_mask: Tensor | None, vision_ids: tuple[int, ...]) -> list[Prompt]:
    """Token roles of every sample of a left-padded batch.

    Args:
        input_ids: (B, N) token ids, placeholders expanded.
        attention_mask: (B, N) with 0 on padding, or None when nothing is padded.
        vision_ids: what `vision_token_ids` says. In each sample the first of them that occurs is the counted one.

    Raises:
        ValueError: padding that is not on the left, or a sample without any token.
    """
    ids = input_ids.detach().cpu()
    if attention_mask is None:
        return [_prompt(row, vision_ids) for row in ids]
    real = attention_mask.detach().cpu().bool()
    lengths = real.sum(-1)
    if (lengths == 0).any():
        raise ValueError(f"sample {int((lengths == 0).nonzero()[0])} of the batch has no token")
    if not all(bool(row[real.shape[1] - int(n) :].all()) for row, n in zip(real, lengths)):
        raise ValueError("padding must be on the left: set the processor's padding_side to 'left'")
    return [_prompt(row[-int(n) :], vision_ids) for row, n in zip(ids, lengths)]


def _prompt(ids: Tensor, vision_ids: tuple[int, ...]) -> Prompt:
    is_vision = torch.isin(ids, torch.tensor(vision_ids, dtype=ids.dtype))
    counted = next((found for i in vision_ids if (found := ids == i).any()), is_vision)
    return Prompt(is_vision, _seed(ids), counted)


def _seed(ids: Tensor) -> int:
    digest = hashlib.blake2b(ids.long().contiguous().numpy().tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little")

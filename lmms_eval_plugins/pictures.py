"""What a model saw, and where each of its vision tokens lies in it: to draw what was kept.

Pictures are made from the processor's own tensors: crops, tiles, unpadding and sampled frames are what the model got.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Block:
    """A picture and its grid of tokens, in the order of the prompt.

    Attributes:
        kind: "image", "tile" (all of any-resolution's tiles, joined) or "frame".
        pixels: (H, W, 3) uint8.
        rows, columns: of the grid; ``newline`` more tokens end every row, ``end`` more end the block.
    """

    kind: str
    pixels: np.ndarray
    rows: int
    columns: int
    newline: int = 0
    end: int = 0

    @property
    def tokens(self) -> int:
        """How many prompt tokens it takes."""
        return self.rows * (self.columns + self.newline) + self.end


def blocks(batch: dict[str, Any], processor: Any, config: Any) -> tuple[Iterator[Block], Iterator[Block]]:
    """All pictures and all video frames of a batch, in order.

    Raises:
        ValueError: a model type whose layout is not known.
    """
    kind = config.model_type
    if kind in ("qwen2_5_vl", "qwen3_vl"):
        return _qwen(batch, processor, "image"), _qwen(batch, processor, "video")
    if kind in ("llava", "llava_next", "llava_onevision"):
        return _llava(batch, processor, config), _llava_frames(batch, processor, config)
    raise ValueError(f"where tokens of {kind} lie in a picture is not known")


def _llava(batch: dict[str, Any], processor: Any, config: Any) -> Iterator[Block]:
    pixels = batch.get("pixel_values")
    if pixels is None:
        return
    side = config.vision_config.image_size // config.vision_config.patch_size
    if config.model_type == "llava":
        if processor.num_additional_image_tokens != (processor.vision_feature_select_strategy == "default"):
            raise ValueError("where the tokens lie is not known if a class token is among them")
        for image in pixels:
            yield Block("image", _shown(image, processor.image_processor), side, side)
        return
    for tiles, size in zip(pixels, batch["image_sizes"].tolist(), strict=True):
        yield from _any_resolution(tiles, size, side, processor, config)


def _any_resolution(tiles: Tensor, size: list[int], side: int, processor: Any, config: Any) -> Iterator[Block]:
    """The whole picture, then its tiles without padding, a newline after every row."""
    from transformers.image_processing_utils import select_best_resolution

    base = _shown(tiles[0], processor.image_processor)
    pixels = base.shape[0]
    high, wide = select_best_resolution(size, config.image_grid_pinpoints)
    down, across = high // pixels, wide // pixels
    if len(tiles) < 1 + down * across:  # one tile only: OneVision's several pictures in one prompt
        yield Block("image", base, side, side, end=1)
        return
    yield Block("image", base, side, side)
    unpadded, rows = processor._get_unpadded_features(*size, side, side, down, across)
    joined = [_shown(tile, processor.image_processor) for tile in tiles[1 : 1 + down * across]]
    whole = np.concatenate([np.concatenate(joined[r * across : (r + 1) * across], 1) for r in range(down)])
    ratio = min(whole.shape[0] / size[0], whole.shape[1] / size[1])
    inner = [min(round(ratio * length), limit) for length, limit in zip(size, whole.shape)]
    top, left = ((limit - length) // 2 for length, limit in zip(inner, whole.shape))
    shown = whole[top : top + inner[0], left : left + inner[1]]
    yield Block("tile", shown, rows, unpadded // rows, newline=1)


def _llava_frames(batch: dict[str, Any], processor: Any, config: Any) -> Iterator[Block]:
    videos = batch.get("pixel_values_videos")
    side = math.ceil(config.vision_config.image_size // config.vision_config.patch_size / 2)
    for video in [] if videos is None else videos:
        for number, frame in enumerate(video, start=1):
            pixels = _shown(frame, processor.video_processor)
            yield Block("frame", pixels, side, side, end=int(number == len(video)))


def _qwen(batch: dict[str, Any], processor: Any, kind: str) -> Iterator[Block]:
    """Patches in merged groups, (t, h / m, w / m, m, m) x (channels, frames, patch, patch), put together again."""
    name = "pixel_values" if kind == "image" else "pixel_values_videos"
    if batch.get(name) is None:
        return
    maker = processor.image_processor if kind == "image" else processor.video_processor
    merge, patch, start = maker.merge_size, maker.patch_size, 0
    for t, h, w in batch[f"{kind}_grid_thw"].tolist():
        flat = batch[name][start : start + t * h * w]
        start += t * h * w
        shape = (t, h // merge, w // merge, merge, merge, 3, maker.temporal_patch_size, patch, patch)
        frames = flat.reshape(shape).permute(0, 6, 5, 1, 3, 7, 2, 4, 8).reshape(t, -1, 3, h * patch, w * patch)
        for pair in frames:
            yield Block("image" if kind == "image" else "frame", _shown(pair[0], maker), h // merge, w // merge)


def _shown(pixels: Tensor, maker: Any) -> np.ndarray:
    """Normalised (3, H, W) as (H, W, 3) bytes."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (maker.image_mean, maker.image_std))
    image = pixels.detach().float().cpu() * std + mean
    return (255 * image).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()

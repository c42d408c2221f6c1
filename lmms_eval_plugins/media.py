"""Pictures and videos of a request, in whatever form a task gives them: shown to the model, or the sample fails."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFile
from torch import Tensor

from lmms_eval_plugins.errors import PromptError

_VIDEOS = {".mp4", ".avi", ".mov", ".mkv", ".webm", ".mpeg", ".mpg", ".m4v", ".wmv", ".flv", ".ts", ".3gp", ".ogv"}
_ELSEWHERE = ("http://", "https://", "data:")
_OF_PICTURES = ("image_grid_thw", "image_sizes", "pixel_values")
_OF_VIDEOS = ("video_grid_thw", "pixel_values_videos")


@contextmanager
def whole_pictures() -> Iterator[None]:
    """A picture file that is cut off cannot be read, where lmms-eval has Pillow fill the rest with grey."""
    before, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, False
    try:
        yield
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before


def is_video(value: Any) -> bool:
    """Whether a medium without a stated kind is a video: a file by its ending, an array by its axes, or frames.

    Raises:
        PromptError: it is neither a video nor a picture.
    """
    value = _plain(value)
    if isinstance(value, str):
        return _is_video_file(value)
    if isinstance(value, np.ndarray):
        return value.ndim == 4
    if isinstance(value, list | tuple):
        return True
    if isinstance(value, Image.Image | bytes | dict):
        return False
    raise PromptError(f"a {_kind(value)} is neither a picture nor a video")


def picture(value: Any) -> Any:
    """A picture, read from its file or made of its array; addresses (http, data) are left to the processor.

    Raises:
        PromptError: it is no picture.
    """
    value = _plain(value)
    if isinstance(value, Image.Image) or (isinstance(value, str) and value.startswith(_ELSEWHERE)):
        return value
    if isinstance(value, dict) and (value.get("bytes") or value.get("path")):
        value = value.get("bytes") or value["path"]
    if isinstance(value, bytes):
        value = io.BytesIO(value)
    if isinstance(value, str | io.BytesIO):
        opened = Image.open(local(value) if isinstance(value, str) else value)
        opened.load()
        return opened
    if isinstance(value, np.ndarray):
        return _of_array(value)
    raise PromptError(f"a {_kind(value)} is no picture")


def clip(value: Any) -> Any:
    """A video: its path or address, or a list of its frames as pictures.

    Raises:
        PromptError: it is no video.
    """
    value = _plain(value)
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 4):
        return [picture(frame) for frame in value]
    raise PromptError(f"a {_kind(value)} is no video")


def local(path: str) -> str:
    """The path of a file that may be given by a `file://` address."""
    return path.removeprefix("file://")


def check_shown(batch: Any, given: Sequence[int], vision_ids: Sequence[int]) -> None:
    """Every medium of a batch became vision tokens, whatever the family's processor does with it.

    Args:
        batch: the processor's output.
        given: per sample, its pictures and videos.
        vision_ids: of the placeholders of pictures and videos.

    Raises:
        PromptError: the model would be asked about something that it does not see.
    """
    ids = batch["input_ids"]
    tokens = torch.isin(ids, torch.tensor(vision_ids, dtype=ids.dtype)).sum(dim=1).tolist()
    shown = _entries(batch, _OF_PICTURES) + _entries(batch, _OF_VIDEOS)
    if shown < sum(given) or any(media and not count for media, count in zip(given, tokens, strict=True)):
        raise PromptError(
            f"the prompt has {sum(given)} pictures or videos, of which the model would see "
            f"{min(shown, sum(given)) if any(tokens) else 0}: its processor does not take them all"
        )


def _entries(batch: Any, names: Sequence[str]) -> int:
    return next((len(batch[name]) for name in names if batch.get(name) is not None), 0)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    return str(value) if isinstance(value, Path) else value


def _is_video_file(path: str) -> bool:
    if path.startswith("data:"):
        return path.startswith("data:video")
    ending = Path(local(path).partition("?")[0]).suffix.lower()
    if ending in _VIDEOS:
        return True
    if ending not in Image.registered_extensions():
        raise PromptError(f"{path[:200]}: neither a picture nor a video by the ending of its name ({ending or 'none'})")
    if ending != ".gif" or path.startswith(_ELSEWHERE):
        return False
    with Image.open(local(path)) as opened:
        return getattr(opened, "n_frames", 1) > 1


def _of_array(pixels: np.ndarray) -> Image.Image:
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (1, 3, 4))):
        raise PromptError(f"an array of {pixels.dtype} {pixels.shape} is no picture: uint8 (height, width, 3) is one")
    return Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")

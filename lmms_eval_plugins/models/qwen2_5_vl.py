"""Qwen2.5-VL, under lmms-eval's name `qwen2_5_vl`. Prompts are those of its own wrappers."""

from typing import Any

import numpy as np
import torch
from lmms_eval.models.model_utils.media_encoder import encode_image_to_data_url
from PIL.Image import Image
from transformers import BatchFeature

from lmms_eval_plugins.families import QWEN2_5_VL
from lmms_eval_plugins.models.qwen import QwenVL
from lmms_eval_plugins.models.qwen_media import Message, load_media
from lmms_eval_plugins.models.request import Request


class _Qwen25VL(QwenVL):
    family = QWEN2_5_VL

    def _processed(self, texts: list[str], **media: Any) -> BatchFeature:
        return self.processor(text=texts, padding=True, padding_side="left", return_tensors="pt", **media)


class Qwen25VLChat(_Qwen25VL):
    """The task's messages; the checkpoint's template adds its own system prompt."""

    is_simple = False

    def messages(self, request: Request) -> list[Message]:
        return self.chat_messages(request)

    def video_kwargs(self) -> dict[str, Any]:
        options = self.settings.options
        kwargs = {"max_pixels": options["max_pixels"], "min_pixels": options["min_pixels"]}
        if options["fps"] is not None:
            return kwargs | {"fps": options["fps"]}
        return kwargs | {"nframes": options["max_num_frames"]}

    def tokenise(self, texts: list[str], messages: list[list[Message]]) -> BatchFeature:
        images, videos, metadata = load_media(messages, patch_size=14)
        return self._processed(texts, images=images, videos=videos, video_metadata=metadata)


class Qwen25VLSimple(_Qwen25VL):
    """System prompt, pictures (as JPEG, like in stock), text."""

    default_limit = 32768

    def messages(self, request: Request) -> list[Message]:
        return self.simple_messages(request)

    def video_kwargs(self) -> dict[str, Any]:
        return {name: self.settings.options[name] for name in ("max_pixels", "min_pixels")}

    def encode(self, image: Image) -> str:
        return encode_image_to_data_url(
            image, image_format="JPEG", mime_type="image/jpeg", convert_rgb=True, quality=85
        )

    def tokenise(self, texts: list[str], messages: list[list[Message]]) -> BatchFeature:
        images, videos, _ = load_media(messages, patch_size=14)
        if videos is not None:
            videos = [_spread(frames, self.settings.options["max_num_frames"]) for frames in videos]
        return self._processed(texts, images=images, videos=videos)


def _spread(frames: torch.Tensor, most: int) -> torch.Tensor:
    """At most about `most` frames, first and last among them."""
    last = frames.shape[0] - 1
    chosen = np.unique(np.append(np.linspace(0, last, most, dtype=int), last))
    return frames[chosen]

"""Qwen3-VL, under lmms-eval's name `qwen3_vl`. Prompts are those of its own wrappers."""

from typing import Any

from transformers import BatchFeature

from lmms_eval_plugins.families import QWEN3_VL
from lmms_eval_plugins.models.qwen import QwenVL
from lmms_eval_plugins.models.qwen_media import Message, load_media
from lmms_eval_plugins.models.request import Request


class _Qwen3VL(QwenVL):
    family = QWEN3_VL

    def video_kwargs(self) -> dict[str, Any]:
        options = self.settings.options
        fps, total, frames = options["fps"], options["total_pixels"], options["max_num_frames"]
        kwargs = {"min_pixels": options["min_pixels"]}
        if fps is not None:
            kwargs |= {"fps": fps, "max_frames": frames}
        elif total is not None:
            kwargs["max_frames"] = frames
        else:
            kwargs["nframes"] = frames
        return kwargs | ({"max_pixels": options["max_pixels"]} if total is None else {"total_pixels": total})

    def read_text(self, text: str) -> str:
        """What follows the reasoning; a text in which none ends is the answer itself, where stock has an empty one."""
        _, end, answer = text.partition("</think>")
        return answer.strip() if end and self.settings.options["enable_thinking"] else text

    def processor_video_kwargs(self) -> dict[str, Any]:
        """Video arguments that go to the processor beside those of qwen_vl_utils."""
        return {}

    def tokenise(self, texts: list[str], messages: list[list[Message]]) -> BatchFeature:
        images, videos, metadata = load_media(messages, patch_size=16)
        return self.processor(
            text=texts,
            images=images,
            videos=videos,
            video_metadata=metadata,
            **{**self.processor_video_kwargs(), "do_sample_frames": False},
            do_resize=False,
            padding=True,
            padding_side="left",
            return_tensors="pt",
        )


class Qwen3VLChat(_Qwen3VL):
    """The task's messages after the system prompt, if there is one."""

    is_simple = False

    def messages(self, request: Request) -> list[Message]:
        system = {"type": "text", "text": self.settings.options["system_prompt"]}
        before = [{"role": "system", "content": [system]}] if system["text"] else []
        return [*before, *self.chat_messages(request)]

    def processor_video_kwargs(self) -> dict[str, Any]:
        return self.video_kwargs()


class Qwen3VLSimple(_Qwen3VL):
    """System prompt, pictures, text."""

    def messages(self, request: Request) -> list[Message]:
        return self.simple_messages(request)

"""Prompts of the Qwen-VL families, as lmms-eval's own wrappers make them."""

import re
from typing import Any

from lmms_eval.protocol import ChatMessages
from PIL.Image import Image
from transformers import BatchFeature

from lmms_eval_plugins import media
from lmms_eval_plugins.errors import PromptError
from lmms_eval_plugins.models.base import EvictionWrapper
from lmms_eval_plugins.models.qwen_media import Message
from lmms_eval_plugins.models.request import Request

_PLACEHOLDER = re.compile(r"<image (\d+)>")


class QwenVL(EvictionWrapper):
    """From messages to processor input; `messages` comes from the kind of wrapper."""

    default_limit = 128

    def _load(self) -> None:
        self.min_pixels, self.max_pixels = (self.settings.options[name] for name in ("min_pixels", "max_pixels"))
        tokens = self.settings.vision.image_max_tokens
        if tokens is not None and self.family.token_side is not None:
            self.max_pixels = tokens * self.family.token_side**2
            self.min_pixels = min(self.min_pixels, self.max_pixels)
        super()._load()

    def processor_arguments(self) -> dict[str, Any]:
        return {"min_pixels": self.min_pixels, "max_pixels": self.max_pixels}

    def messages(self, request: Request) -> list[Message]:
        """The conversation of a request, with pictures and videos in it."""
        raise NotImplementedError

    def tokenise(self, texts: list[str], messages: list[list[Message]]) -> BatchFeature:
        """Loads the pictures and videos of the messages and calls the processor."""
        raise NotImplementedError

    def build_inputs(self, requests: list[Request]) -> BatchFeature:
        messages = [self.messages(request) for request in requests]
        template = {}
        if self.settings.options.get("enable_thinking") is not None:
            template["enable_thinking"] = self.settings.options["enable_thinking"]
        texts = self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **template)
        return self.tokenise(texts, messages)

    def video_kwargs(self) -> dict[str, Any]:
        """How videos are sampled and resized; a request for more frames than a video has is rounded down."""
        raise NotImplementedError

    def image_kwargs(self) -> dict[str, Any]:
        """How a picture of a chat message is resized: as in stock by the defaults, unless a limit is set."""
        if self.settings.vision.image_max_tokens is None:
            return {}
        return {"min_pixels": self.min_pixels, "max_pixels": self.max_pixels}

    def chat_messages(self, request: Request) -> list[Message]:
        """The task's own messages, in transformers' form."""
        chat = ChatMessages(messages=request.ask(self.document(request)))
        messages = chat.to_hf_messages(video_kwargs=self.video_kwargs(), image_kwargs=self.image_kwargs())
        for part in (part for message in messages for part in message["content"]):
            if part["type"] == "image":
                part["image"] = media.picture(part["image"])
            elif part["type"] == "video":
                part["video"] = media.clip(part["video"])
        return messages

    def simple_messages(self, request: Request) -> list[Message]:
        """System prompt, if any, then pictures and videos, then the text; or interleaved at `<image 1>`, ..."""
        options = self.settings.options
        text = request.context.replace("<image>", "")
        if options["reasoning_prompt"]:
            text = text.strip() + options["reasoning_prompt"].replace("\\n", "\n")
        visuals = [self._visual(visual) for visual in request.media(self.document(request))]
        content: list[Message] = [*visuals, {"type": "text", "text": text}]
        if options["interleave_visuals"]:
            content = interleave(text, visuals)
        system = [{"role": "system", "content": options["system_prompt"]}] if options["system_prompt"] else []
        return [*system, {"role": "user", "content": content}]

    def _visual(self, visual: Any) -> Message:
        if media.is_video(visual):
            return {"type": "video", "video": media.clip(visual), **self.video_kwargs()}
        limits = {"max_pixels": self.max_pixels, "min_pixels": self.min_pixels}
        return {"type": "image", "image": self.encode(media.picture(visual)), **limits}

    def encode(self, image: Image) -> Any:
        """A picture as it goes into a simple prompt."""
        return image


def interleave(text: str, visuals: list[Message]) -> list[Message]:
    """Puts each visual where the text names it; a number that is too high takes the last one.

    Raises:
        PromptError: the text does not name all of them, so the model would not see them all.
    """
    first, *rest = _PLACEHOLDER.split(text)
    content: list[Message] = [{"type": "text", "text": first}] if first else []
    for number, following in zip(rest[::2], rest[1::2], strict=True):
        if visuals:
            content.append(visuals[min(int(number) - 1, len(visuals) - 1)])
        if following:
            content.append({"type": "text", "text": following})
    left_out = [number for number, visual in enumerate(visuals, 1) if not any(part is visual for part in content)]
    if left_out:
        numbers = ", ".join(map(str, left_out))
        raise PromptError(
            f"interleave_visuals: the text has no place for {numbers} of {len(visuals)} pictures or videos"
        )
    return content

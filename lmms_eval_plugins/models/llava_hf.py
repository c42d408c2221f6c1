"""LLaVA-1.5, LLaVA-NeXT and LLaVA-OneVision under lmms-eval's name `llava_hf`, with the prompts of its own wrappers."""

import ast
from functools import cache
from pathlib import Path
from typing import Any

import lmms_eval
import numpy as np
from lmms_eval.protocol import ChatMessages
from transformers import BatchFeature

from lmms_eval_plugins import media, video
from lmms_eval_plugins.families import LLAVA
from lmms_eval_plugins.imports import parsed
from lmms_eval_plugins.models.base import EvictionWrapper
from lmms_eval_plugins.models.request import Request

IMAGE, VIDEO = "<image>", "<video>"


class _LlavaHf(EvictionWrapper):
    family = LLAVA
    default_limit = 1024

    def _load(self) -> None:
        super()._load()
        ratio = self.settings.vision.aspect_ratio
        if ratio is not None:
            # The processor counts placeholders by it, the model packs features by it.
            self._model.config.vision_aspect_ratio = ratio
            self.processor.vision_aspect_ratio = ratio

    @property
    def pad_token_id(self) -> int:
        return self.eot_token_id

    def _tokenise(self, texts: list[str], images: list[Any], videos: list[Any]) -> BatchFeature:
        shown = {name: items for name, items in (("images", images), ("videos", videos)) if items}
        return self.processor(text=texts, padding=True, return_tensors="pt", **shown)

    def _frames(self, visual: Any) -> Any:
        """`max_frames_num` frames (T, H, W, 3) of a video file, spread as in stock; frames made by a task stay."""
        found = media.clip(visual)
        if not isinstance(found, str):
            return np.stack([np.asarray(frame.convert("RGB")) for frame in found])
        return video.read(found, video.uniform(self.settings.options["max_frames_num"])).frames


class LlavaHfChat(_LlavaHf):
    """Prompts by the processor's chat template."""

    is_simple = False

    def check_template(self) -> None:
        """`chat_template` is for simple prompts, as in stock."""
        super().check_template()
        if self.settings.options["chat_template"]:
            self.say("chat_template in --model_args has no effect on chat prompts: add --force_simple to use it")

    def build_inputs(self, requests: list[Request]) -> BatchFeature:
        texts, images, videos = [], [], []
        for request in requests:
            chat = ChatMessages(messages=request.ask(self.document(request)))
            more_images, more_videos, _ = chat.extract_media()
            images += [media.picture(value) for value in more_images]
            videos += [self._frames(value) for value in more_videos]
            messages = chat.model_dump()["messages"]
            texts.append(self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        return self._tokenise(texts, images, videos)


class LlavaHfSimple(_LlavaHf):
    """Prompts by the tokenizer's chat template (Vicuna's if it has none), pictures first."""

    def build_inputs(self, requests: list[Request]) -> BatchFeature:
        texts, images, videos = [], [], []
        for request in requests:
            visuals = request.media(self.document(request))
            kinds = [media.is_video(visual) for visual in visuals]
            texts.append(self._prompt(request.context, [VIDEO if is_video else IMAGE for is_video in kinds]))
            for visual, is_video in zip(visuals, kinds, strict=True):
                if is_video:
                    videos.append(self._frames(visual))
                else:
                    images.append(media.picture(visual))
        return self._tokenise(texts, images, videos)

    def check_template(self) -> None:
        """A checkpoint without a template gets Vicuna's, as in stock, and says so."""
        if not (self.settings.options["chat_template"] or self.tokenizer.chat_template):
            self.say("the checkpoint's tokenizer has no chat template: prompts are made with Vicuna's, as in lmms-eval")

    def _prompt(self, context: str, placeholders: list[str]) -> str:
        if placeholders and IMAGE not in context:
            context = " ".join(placeholders) + f"\n{context}"
        template = self.settings.options["chat_template"] or self.tokenizer.chat_template or _vicuna_template()
        messages = [{"role": "user", "content": context}]
        return self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, chat_template=template
        )


@cache
def _vicuna_template() -> str:
    """lmms-eval's, read from its file: to import that needs `decord`, which has wheels for few machines."""
    path = Path(lmms_eval.__file__).parent / "models" / "simple" / "llava_hf.py"
    named = {ast.unparse(node.targets[0]): node.value for node in parsed(path).body if isinstance(node, ast.Assign)}
    return ast.literal_eval(named["VICUNA_CHAT_TEMPLATE"])

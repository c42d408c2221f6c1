"""What wrappers give a model belongs to their version, which is in every fingerprint."""

import re

import pytest

from lmms_eval_plugins import models, settings
from lmms_eval_plugins.families import LLAVA
from lmms_eval_plugins.models.request import Request

from . import toy

VERSION = 2
PICTURE, CLIP = "<|vision_start|>{}x<|image_pad|><|vision_end|>", "<|vision_start|>{}x<|video_pad|><|vision_end|>"
SYSTEM = "system: You are a helpful assistant."
TIMED = (
    "<|vision_start|><0.1 seconds><|vision_start|>4x<|video_pad|><|vision_end|>"
    "<0.6 seconds><|vision_start|>4x<|video_pad|>2x<|vision_end|>"
)
PROMPTS = {  # of VERSION: the prompts of chat and of simple wrappers, around the question
    ("llava", "image"): ("user: 16x<image>", "user: 16x<image>\n"),
    ("llava_next", "image"): ("user: 88x<image>", "user: 88x<image>\n"),
    ("llava_onevision", "image"): ("user: 88x<image>", "user: 88x<image>\n"),
    ("llava_onevision", "video"): ("user: 17x<video>", "user: 17x<video>\n"),
    ("qwen2_5_vl", "image"): (f"user: {PICTURE.format(9)}", f"{SYSTEM}user: {PICTURE.format(9)}"),
    ("qwen2_5_vl", "video"): (f"user: {CLIP.format(18)}", f"{SYSTEM}user: {CLIP.format(18)}"),
    ("qwen3_vl", "image"): (f"{SYSTEM}user: {PICTURE.format(4)}", f"{SYSTEM}user: {PICTURE.format(4)}"),
    ("qwen3_vl", "video"): (f"{SYSTEM}user: {TIMED}", f"{SYSTEM}user: {TIMED}"),
}


def rendered(model, doc):
    """A prompt as text; repeated tokens are counted."""
    task = toy.ToyTask([doc])
    model.task_dict = {toy.TASK: {toy.SPLIT: task.docs}}
    (instance,) = task.requests(chat=not model.is_simple)
    ids = model.build_inputs([Request.of(0, instance, chat=not model.is_simple)])["input_ids"][0]
    text = model.tokenizer.decode(ids)
    return re.sub(r"(<[^<>]+>)\1+", lambda found: f"{len(found[0]) // len(found[1])}x{found[1]}", text)


@pytest.mark.parametrize("kind", ["chat", "simple"])
@pytest.mark.parametrize(("family", "medium"), PROMPTS)
def test_a_prompt_that_is_rendered_otherwise_is_another_version(family, medium, kind, checkpoint, tmp_path):
    frames = {"max_frames_num" if family.startswith("llava") else "max_num_frames": 4}
    model = toy.wrapper(checkpoint(family), kind, **frames)
    model._ready()
    shown = toy.picture(2, 64, 64) if medium == "image" else toy.video(tmp_path / "clip.mp4", 4)
    before = PROMPTS[family, medium][kind == "simple"]
    assert (models.WRAPPER_VERSION, rendered(model, {"text": "colour?", "images": [shown]})) == (
        VERSION,
        f"{before}colour?answer:",
    ), "with another prompt, raise WRAPPER_VERSION, so that stored answers are not taken for those to it"


def test_answers_of_another_version_are_not_found(checkpoint, monkeypatch):
    args = {"pretrained": str(checkpoint("llava")), "device_map": "cpu"}
    before = settings.resolve(LLAVA, "chat", args, {}).fingerprint
    assert settings.resolve(LLAVA, "chat", args, {}).fingerprint == before
    monkeypatch.setattr(models, "WRAPPER_VERSION", models.WRAPPER_VERSION + 1)
    assert settings.resolve(LLAVA, "chat", args, {}).fingerprint != before

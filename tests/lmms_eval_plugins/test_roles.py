"""What real processors make of pictures and videos: their tokens are vision, and everything else is text."""

import itertools
import re

import pytest
import torch

from kv_caches.prompt import split_batch, vision_token_ids
from lmms_eval_plugins.models.request import Request
from tests.reference import segments

from . import toy

FAMILIES = ("qwen3_vl", "qwen2_5_vl", "llava_onevision")
MARKERS = {"qwen3_vl": ("<|vision_start|>", "<|vision_end|>"), "qwen2_5_vl": ("<|vision_start|>", "<|vision_end|>")}
PADS = {"<|image_pad|>", "<|video_pad|>", "<image>", "<video>"}
LAYOUTS = {
    "image": ["look:\n", "image", "what is it?"],
    "images": ["first ", "image", " second ", "image", "\nwhich?"],
    "video": ["see ", "video", "when?\n"],
    "mixed": ["image", "and\n\nthen ", "video", " and ", "image", "<0.5 seconds> why?"],
    "image_last": ["what is ", "image"],
}
#: of the pictures (64 x 64) and the videos (64 x 64, 8 of 12 frames at 4 a second, in pairs), per kind and family
VISION = {
    "qwen3_vl": {"image": [4], "video": [4, 4, 4, 4]},
    "qwen2_5_vl": {"image": [4], "video": [16]},
}
TIMES = ["<0.2 seconds>", "<1.0 seconds>", "<1.8 seconds>", "<2.5 seconds>"]


class Interleaved(toy.ToyTask):
    """Documents say in which order texts and visuals come."""

    def doc_to_messages(self, doc):
        content = []
        for piece in doc["content"]:
            kinds = {"image": ("image", toy.picture(0, 64, 64)), "video": ("video", doc["video"])}
            kind, value = kinds.get(piece, ("text", piece))
            content.append({"type": kind, "text" if kind == "text" else "url": value})
        return [{"role": "user", "content": content}]


@pytest.fixture
def tokens(checkpoint, tmp_path):
    """Ids of the prompts of some layouts as a family's chat wrapper makes them, their mask, and the wrapper."""
    path = toy.video(tmp_path / "clip.mp4")

    def make(family, *layouts):
        task = Interleaved([{"text": "", "content": LAYOUTS[layout], "video": path} for layout in layouts])
        limits = {} if family == "llava_onevision" else {"min_pixels": 56 * 56, "max_pixels": 64 * 64}
        frames = {"max_frames_num" if family == "llava_onevision" else "max_num_frames": 8}
        model = toy.wrapper(checkpoint(family), "chat", **limits, **frames)
        model._ready()
        model.task_dict = {toy.TASK: {toy.SPLIT: task.docs}}
        requests = [Request.of(i, one, chat=True) for i, one in enumerate(task.requests(chat=True))]
        batch = model.build_inputs(requests)
        return batch["input_ids"], batch["attention_mask"], model

    return make


def runs(flags):
    """Lengths of the stretches of vision."""
    return [len(list(group)) for is_vision, group in itertools.groupby(flags) if is_vision]


def shown(family, kind):
    """The text that stands where a visual was."""
    start, end = MARKERS.get(family, ("", ""))
    if family == "qwen3_vl" and kind == "video":
        return start + "".join(time + start + end for time in TIMES) + end
    return start + end


@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("family", FAMILIES)
def test_vision_is_what_stands_for_pixels_and_text_is_all_the_rest(family, layout, tokens):
    ids, mask, model = tokens(family, layout)
    (prompt,) = split_batch(ids, mask, vision_token_ids(model.model.config))
    pieces = [PADS & {model.tokenizer.convert_ids_to_tokens(token)} for token in ids[0].tolist()]
    assert prompt.is_vision.tolist() == list(map(bool, pieces))
    assert prompt.vision.tolist() == segments.vision_positions(prompt.is_vision.tolist())
    assert prompt.text.tolist() == segments.text_positions(prompt.is_vision.tolist())
    pictures = [any("image" in pad for pad in piece) for piece in pieces]
    counted = pictures if any(pictures) else prompt.is_vision.tolist()
    assert prompt.official_block == segments.official_block(counted)
    said = "".join(shown(family, piece) if piece in ("image", "video") else piece for piece in LAYOUTS[layout])
    text = model.tokenizer.decode(ids[0][prompt.text])
    assert re.search(re.escape(said), text), text
    visuals = [piece for piece in LAYOUTS[layout] if piece in ("image", "video")]
    lengths = runs(prompt.is_vision.tolist())
    if family in VISION:
        assert lengths == [length for kind in visuals for length in VISION[family][kind]]
    else:
        assert len(lengths) == len(visuals)


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_moves_no_role(family, tokens):
    ids, mask, model = tokens(family, "image", "mixed", "video")
    together = split_batch(ids, mask, vision_token_ids(model.model.config))
    for layout, prompt in zip(("image", "mixed", "video"), together, strict=True):
        alone_ids, alone_mask, _ = tokens(family, layout)
        (alone,) = split_batch(alone_ids, alone_mask, vision_token_ids(model.model.config))
        assert torch.equal(prompt.is_vision, alone.is_vision)


def test_timestamps_are_what_the_released_code_takes_for_vision(tokens):
    ids, mask, model = tokens("qwen3_vl", "video")
    (prompt,) = split_batch(ids, mask, vision_token_ids(model.model.config))
    first, after = prompt.official_block
    inside = [position for position in prompt.text.tolist() if first <= position < after]
    behind = [position for position in prompt.vision.tolist() if position >= after]
    assert len(inside) == len(behind) > 0
    assert model.tokenizer.decode(ids[0, inside]).startswith("<|vision_end|><1.0 s")

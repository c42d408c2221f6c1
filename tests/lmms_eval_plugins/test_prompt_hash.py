"""What a request shows decides which answer is found, not the name it goes by."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from qwen_vl_utils import vision_process

from lmms_eval_plugins import settings
from lmms_eval_plugins.errors import PromptError
from lmms_eval_plugins.families import LLAVA, QWEN3_VL
from lmms_eval_plugins.prompts import prompt_hash
from lmms_eval_plugins.store import Key, Store

from . import toy


def hashed(content):
    return prompt_hash("what?", {}, content)


def messages(url, text="what?", kind="image"):
    return [{"role": "user", "content": [{"type": kind, "url": url}, {"type": "text", "text": text}]}]


@pytest.mark.parametrize("form", ["{}", "file://{}", "relative"])
@pytest.mark.parametrize("shape", [lambda url: [url], messages, lambda url: messages(url, kind="video")])
def test_a_file_counts_with_its_content(form, shape, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "medium"
    name = path.name if form == "relative" else form.format(path)
    path.write_bytes(bytes(3 << 20))
    before = hashed(shape(name))
    assert hashed(shape(str(path))) == before
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    assert hashed(shape(str(copy))) == before
    with path.open("r+b") as file:  # one byte in the middle: neither the size nor the ends change
        file.seek(3 << 19)
        file.write(b"x")
    os.utime(path, ns=(1, 1))
    assert hashed(shape(name)) != before


def test_a_text_that_is_named_like_a_file_is_a_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = hashed(messages("http://host/picture.png", text="answer"))
    (tmp_path / "answer").write_text("yes")
    assert hashed(messages("http://host/picture.png", text="answer")) == before


def test_a_picture_counts_with_its_palette_and_the_way_it_is_turned():
    plain = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) % 4)
    red, blue, clear = (plain.convert("P") for _ in range(3))
    for picture, palette in ((red, [0, 0, 0, 255, 0, 0]), (blue, [0, 0, 0, 0, 0, 255]), (clear, [0, 0, 0, 0, 0, 255])):
        picture.putpalette(palette)
    clear.info["transparency"] = 1
    turned = plain.copy()
    turned.getexif()[0x0112] = 6
    assert len({hashed([picture]) for picture in (plain, red, blue, clear, turned)}) == 5
    turned.getexif()[0x0112] = 1
    assert hashed([turned]) == hashed([plain])


def test_arrays_and_tensors_count_with_their_numbers():
    zeros, ones = np.zeros((2, 2, 3), np.uint8), np.ones((2, 2, 3), np.uint8)
    forms = [zeros, ones, zeros.astype(float), torch.tensor(zeros), torch.tensor(ones), [np.int64(1)], [np.int64(2)]]
    assert len({hashed([form]) for form in forms}) == len(forms)
    assert hashed([Path("a")]) == hashed(["a"])


def test_a_medium_whose_content_is_not_known_is_refused():
    with pytest.raises(PromptError, match=r"a builtins\.object is no picture or video"):
        hashed([object()])


def test_what_could_not_be_read_is_never_answered_from_the_store(tmp_path):
    key, store = Key("task", 0, 0, None), Store(tmp_path / "v1-0").open(0)
    answer = {"task": "task", "doc_id": 0, "prompt_hash": None, "status": "ok", "answer": "a", "generated_tokens": 1}
    store.append([answer])
    store.close()
    assert Store(tmp_path / "v1-0").load().find(key) is None


def test_limits_that_qwen_vl_utils_has_from_the_environment_are_in_the_fingerprint(checkpoint, monkeypatch):
    def fingerprint(family, model):
        return settings.resolve(
            family, "chat", {"pretrained": str(checkpoint(model)), "device_map": "cpu"}, {}
        ).fingerprint

    before = fingerprint(QWEN3_VL, "qwen3_vl"), fingerprint(LLAVA, "llava")
    monkeypatch.setattr(vision_process, "MODEL_SEQ_LEN", 16000)
    assert fingerprint(QWEN3_VL, "qwen3_vl") != before[0]
    assert fingerprint(LLAVA, "llava") == before[1]
    run = settings.resolve(
        QWEN3_VL, "chat", {"pretrained": str(checkpoint("qwen3_vl")), "device_map": "cpu"}, {"MODEL_SEQ_LEN": "16000"}
    )
    assert run.vision.notes == ("MODEL_SEQ_LEN=16000 limits videos (qwen_vl_utils)",)


def test_they_decide_what_is_seen(checkpoint, environment, monkeypatch, tmp_path):
    monkeypatch.setenv("KV_CACHE_TYPE", "none")
    task = toy.ToyTask([{"text": "what?", "images": [toy.video(tmp_path / "clip.mp4")]}])
    seen = []
    for length in (128000, 10):
        monkeypatch.setattr(vision_process, "MODEL_SEQ_LEN", length)
        toy.ask(toy.wrapper(checkpoint("qwen3_vl"), store=environment, min_pixels=1024, max_pixels=65536), task)
        seen.append(toy.records(environment)[-1]["eviction"]["vision_tokens"])
    assert len(toy.records(environment)) == 2
    assert seen[0] > seen[1]


READ = {"MODEL_SEQ_LEN", "TORCHCODEC_NUM_THREADS", "FORCE_QWENVL_VIDEO_READER"}
"""The first is in the fingerprint; the others are of a video reader that is not used."""


def test_no_library_reads_another_variable_that_decides_what_is_seen():
    root = Path(transformers.__file__).parent
    files = [
        Path(vision_process.__file__),
        root / "image_utils.py",
        root / "video_utils.py",
        root / "processing_utils.py",
    ]
    files += [root / "video_processing_utils.py", *root.glob("image_processing*.py")]
    for family in ("llava", "llava_next", "llava_onevision", "qwen2_vl", "qwen2_5_vl", "qwen3_vl"):
        files += (root / "models" / family).glob("*processing*.py")
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    found = set(re.findall(r"(?:environ(?:\.get)?|getenv)\s*[\[(]\s*['\"](\w+)", text))
    assert found == READ, f"decide whether these change what a model sees: {found - READ}"

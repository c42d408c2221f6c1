"""KV_RECORD_KEPT: what was kept can be drawn, and where each token lies in the picture is right."""

import json

import numpy as np
import pytest
from PIL import Image

from kv_caches import ConfigError
from lmms_eval_plugins.kept import wanted
from tiny_vlm import MODEL_DIR

from . import toy


def gradient(width, height):
    """Red says how far right a pixel is, green how far down."""
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([x, y, np.full_like(x, 128)], -1).astype(np.uint8))


DOCS = [{"text": "what?", "images": [gradient(128, 64)]}, {"text": "and which is it?", "images": [gradient(64, 128)]}]


@pytest.fixture
def drawn(checkpoint, environment, monkeypatch, tmp_path):
    def run(family, docs=DOCS, sweep=False):
        monkeypatch.setenv("KV_RECORD_KEPT", "1")
        monkeypatch.setenv("KV_CACHE_TYPE", "tgv_kv")
        monkeypatch.setenv("KV_RETENTION", "0.5")
        if sweep:
            monkeypatch.setenv("KV_SWEEP", "quickstart")
        folder = tmp_path / "drawn"
        monkeypatch.setenv("KV_RECORDS_DIR", str(folder))
        frames = {"max_frames_num": 8} if family.startswith(("llava", "embedded")) else {}
        place = MODEL_DIR if family == "embedded" else checkpoint(family)
        toy.ask(toy.wrapper(place, store=folder, batch_size=2, **frames), toy.ToyTask(docs))
        found = toy.records(folder)
        assert [record["error"] for record in found if record["error"]] == []
        return folder / "prompts", found

    return run


@pytest.mark.parametrize("family", ["embedded", "llava", "llava_next", "llava_onevision", "qwen2_5_vl", "qwen3_vl"])
def test_every_vision_token_has_its_place_in_the_picture(family, drawn):
    folder, found = drawn(family)
    assert len(found) == 2
    for record in found:
        prompt = json.loads((folder / f"{record['eviction']['prompt']}.json").read_text())
        assert len(prompt["tokens"]) == record["eviction"]["kept"]["shape"][2]
        covered = []
        for block in prompt["blocks"]:
            stride = block["columns"] + block["newline"]
            covered += range(block["start"], block["start"] + block["rows"] * stride + block["end"])
            assert_upright(np.asarray(Image.open(folder / block["file"])), block)
        assert covered == [i for i, token in enumerate(prompt["tokens"]) if token is None]


def assert_upright(pixels, block):
    """Red grows to the right and green downwards over the grid, over nearly the whole range."""
    cells = Image.fromarray(pixels).resize((block["columns"], block["rows"]), Image.Resampling.BOX)
    red, green = np.asarray(cells).astype(int)[..., 0], np.asarray(cells).astype(int)[..., 1]
    assert (np.diff(red.mean(0)) > 0).all()
    assert (np.diff(green.mean(1)) > 0).all()
    if block["kind"] == "tile":
        assert min(np.ptp(pixels[..., 0]), np.ptp(pixels[..., 1])) > 225, "padding is left, or something was cut off"


@pytest.mark.parametrize("family", ["llava_onevision", "qwen2_5_vl", "qwen3_vl"])
def test_frames_of_a_video_are_blocks_of_their_own(family, drawn, tmp_path):
    path = toy.video(tmp_path / "clip.mp4")
    folder, found = drawn(family, [{"text": "when?", "images": [path]}])
    prompt = json.loads((folder / f"{found[0]['eviction']['prompt']}.json").read_text())
    assert {block["kind"] for block in prompt["blocks"]} == {"frame"}
    assert len(prompt["blocks"]) == (8 if family == "llava_onevision" else 4)


def test_a_sweep_records_it_for_every_configuration_and_writes_a_prompt_once(drawn):
    folder, found = drawn("llava", sweep=True)
    assert len(found) == 2 * 5
    assert len(list(folder.glob("*.json"))) == 2
    assert {record["eviction"]["prompt"] for record in found} == {path.stem for path in folder.glob("*.json")}


def test_an_answer_without_it_is_computed_again_and_one_with_it_is_not(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("KV_CACHE_TYPE", "tgv_kv")
    monkeypatch.setenv("KV_RETENTION", "0.5")
    folder = tmp_path / "again"
    for switch, count in (("0", 1), ("1", 2), ("1", 2), ("0", 2)):
        monkeypatch.setenv("KV_RECORD_KEPT", switch)
        monkeypatch.setenv("KV_RECORDS_DIR", str(folder))
        toy.ask(toy.wrapper(checkpoint("llava"), store=folder), toy.ToyTask(DOCS[:1]))
        assert len(toy.records(folder)) == count


@pytest.mark.parametrize("family", ["embedded", "llava"])
def test_the_text_is_as_it_was_asked(family, drawn):
    folder, found = drawn(family)
    texts = {"".join(filter(None, json.loads(path.read_text())["tokens"])) for path in folder.glob("*.json")}
    assert len(texts) == len(found) == 2
    assert any("and which is it" in text for text in texts)


def test_a_value_that_means_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"KV_RECORD_KEPT=yes: 1 \(yes\) or 0 \(no\) is needed"):
        wanted({"KV_RECORD_KEPT": "yes"})

"""A picture or video is shown to the model whatever form it comes in, or its sample fails and says why."""

from pathlib import Path

import numpy as np
import pytest
import torch

from . import toy

FAMILIES = ["llava", "llava_onevision", "qwen2_5_vl", "qwen3_vl"]
FRAMES = [toy.picture(seed, 64, 64) for seed in range(6)]


@pytest.fixture
def asked(checkpoint, environment, monkeypatch):
    """Records of media that are asked about one by one, or in batches."""
    monkeypatch.setenv("KV_CACHE_TYPE", "none")

    def records(family, kind, media, batch=1, **args):
        frames = {"max_frames_num" if family.startswith("llava") else "max_num_frames": 4}
        model = toy.wrapper(checkpoint(family), kind, environment, batch_size=batch, **frames | args)
        toy.ask(model, toy.ToyTask([{"text": "what?", "images": list(images)} for images in media]))
        return sorted(toy.records(environment), key=lambda record: record["doc_id"])

    return records


def pictures(folder):
    """One picture in the forms that tasks have it in; a GIF has fewer colours and so is another one."""
    shown = toy.picture(0, 64, 64)
    shown.save(folder / "p.png")
    shown.save(folder / "p.gif")
    path = str(folder / "p.png")
    array = np.array(shown)
    content = {"bytes": (folder / "p.png").read_bytes(), "path": None}
    return [shown, path, Path(path), f"file://{path}", array, torch.tensor(array), content, str(folder / "p.gif")]


@pytest.mark.parametrize("family", FAMILIES)
def test_pictures_in_every_form_are_seen_in_simple_prompts(family, asked, tmp_path):
    found = asked(family, "simple", [[form] for form in pictures(tmp_path)], batch=3)
    assert [record["error"] for record in found] == [None] * 8
    assert len({record["answer"] for record in found[:7]}) == 1
    assert len({record["eviction"]["vision_tokens"] for record in found}) == 1
    assert found[0]["eviction"]["vision_tokens"] > 0


@pytest.mark.parametrize("family", ["llava", "qwen3_vl"])
def test_so_they_are_in_messages(family, checkpoint, environment, monkeypatch, tmp_path):
    monkeypatch.setenv("KV_CACHE_TYPE", "none")
    task = toy.ToyTask([{"text": "what?", "images": [form]} for form in pictures(tmp_path)])
    text = {"type": "text", "text": "what?"}
    task.doc_to_messages = lambda doc: [{"role": "user", "content": [{"type": "image", "url": doc["images"][0]}, text]}]
    answers = toy.ask(toy.wrapper(checkpoint(family), store=environment, batch_size=4), task)
    assert [record["error"] for record in toy.records(environment)] == [None] * 8
    assert len(set(answers[:7])) == 1


@pytest.mark.parametrize("family", FAMILIES[1:])
def test_so_are_videos(family, asked, tmp_path):
    gif, webm = tmp_path / "moving.gif", str(tmp_path / "clip.webm")
    Path(toy.video(tmp_path / "clip.mkv")).rename(webm)  # its codec is one that every build of FFmpeg can write
    FRAMES[0].save(gif, save_all=True, append_images=FRAMES[1:], duration=250)
    forms = [webm, f"file://{webm}", Path(webm), str(gif), np.stack([np.array(frame) for frame in FRAMES]), FRAMES]
    found = asked(family, "simple", [[form] for form in forms])
    assert [record["error"] for record in found] == [None] * 6
    assert len({record["answer"] for record in found[:3]}) == len({record["answer"] for record in found[4:]}) == 1
    assert all(record["eviction"]["vision_tokens"] > 0 for record in found)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_neither_fails_with_its_type_and_the_others_are_answered(family, asked, tmp_path):
    (tmp_path / "p.xyz").write_bytes(b"?")
    odd = [[object()], [str(tmp_path / "p.xyz")], [np.zeros((4, 4, 7), np.uint8)], [np.zeros((4, 4, 3))]]
    fine, *failed = asked(family, "simple", [[toy.picture(0)], *odd], batch=5)
    assert fine["status"] == "ok"
    assert [record["error"].removeprefix("PromptError: ") for record in failed] == [
        "a builtins.object is no picture or video that can be read",
        f"{tmp_path / 'p.xyz'}: neither a picture nor a video by the ending of its name (.xyz)",
        "an array of uint8 (4, 4, 7) is no picture: uint8 (height, width, 3) is one",
        "an array of float64 (4, 4, 3) is no picture: uint8 (height, width, 3) is one",
    ]


@pytest.mark.parametrize("kind", ["chat", "simple"])
@pytest.mark.parametrize("family", ["llava", "llava_next"])
def test_a_model_without_video_is_not_asked_about_one_blind(family, kind, asked, tmp_path):
    clip = toy.video(tmp_path / "clip.mp4")
    picture, video, both = asked(family, kind, [[toy.picture(0)], [clip], [toy.picture(0), clip]], batch=3)
    assert picture["status"] == "ok"
    for record, count in ((video, 1), (both, 2)):
        assert record["status"] == "failed"
        seen = f"the prompt has {count} pictures or videos, of which the model would see {count - 1}"
        assert record["error"].startswith(f"PromptError: {seen}: its processor does not take them all")


def test_a_picture_that_an_interleaved_text_does_not_place_fails(asked, environment, checkpoint):
    model = toy.wrapper(checkpoint("qwen3_vl"), "simple", environment, interleave_visuals=True)
    images = [toy.picture(0), toy.picture(1)]
    texts = "<image 1> or <image 2>?", "<image 2>?", "<image 1>, yes, <image 1>?"
    toy.ask(model, toy.ToyTask([{"text": text, "images": images} for text in texts]))
    assert [record["error"] for record in toy.records(environment)] == [
        None,
        "PromptError: interleave_visuals: the text has no place for 1 of 2 pictures or videos",
        "PromptError: interleave_visuals: the text has no place for 2 of 2 pictures or videos",
    ]


def test_a_sound_fails(checkpoint, environment):
    task = toy.ToyTask([{"text": "what?", "images": []}])
    sound = [{"role": "user", "content": [{"type": "audio", "url": "a.wav"}, {"type": "text", "text": "what?"}]}]
    task.doc_to_messages = lambda doc: sound
    for family in ("llava", "qwen3_vl"):
        toy.ask(toy.wrapper(checkpoint(family), store=environment), task)
    assert [record["status"] for record in toy.records(environment)] == ["failed"] * 2


def test_a_document_is_decoded_once_for_a_batch(checkpoint, environment):
    class Counted(list):
        looked_up = 0

        def __getitem__(self, index):
            self.looked_up += 1
            return super().__getitem__(index)

    docs = Counted(toy.documents())
    model, task = toy.wrapper(checkpoint("llava"), store=environment, batch_size=4), toy.ToyTask(docs)
    model.task_dict = {toy.TASK: {toy.SPLIT: docs}}
    requests = task.requests(chat=True)
    docs.looked_up = 0
    model.generate_until(requests)
    assert docs.looked_up == 2 * len(docs)  # for the hash of the prompt, and to answer it

"""Videos: the frames that lmms-eval's readers give, no more than there are, and a reason where there are none."""

import itertools

import av
import decord
import numpy as np
import pytest
from qwen_vl_utils import process_vision_info
from qwen_vl_utils.vision_process import fetch_video

from lmms_eval_plugins import video
from lmms_eval_plugins.models.qwen_media import chosen_frames, load_media, load_video

from . import grid, toy
from .test_grid import assert_equal, separately, together

WITH_VIDEO = ("llava_onevision", "qwen2_5_vl", "qwen3_vl")


def damaged(folder, share=0.5):
    """A file whose index, at its front, names frames that were cut off."""
    whole = folder / "whole.mp4"
    toy.video(whole, frames=40, options={"movflags": "faststart"})
    path = folder / "cut.mp4"
    path.write_bytes(whole.read_bytes()[: int(whole.stat().st_size * share)])
    return str(path)


def unusable(kind, folder):
    """A file that cannot be shown, and the reason."""
    path = folder / f"{kind}.mp4"
    if kind == "empty":
        path.touch()
    elif kind == "noise":
        path.write_bytes(np.random.default_rng(0).bytes(5000))
    elif kind == "damaged":
        return damaged(folder), "cut.mp4: damaged: only "
    elif kind == "sound":
        with av.open(str(path), "w") as container:
            stream = container.add_stream("aac", rate=8000)
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 4096), dtype=np.float32), "fltp", "mono")
            frame.rate = 8000
            container.mux([*stream.encode(frame), *stream.encode()])
    elif kind == "one_frame":
        toy.video(path, frames=1)
    reason = {
        "missing": "there is no such video file",
        "empty": "the video file is empty (0 bytes)",
        "noise": "cannot be decoded: Invalid data found when processing input",
        "sound": "has no video stream",
        "one_frame": "has 1 frame(s), and at least 2 are needed",
    }[kind]
    return str(path), f"VideoError: {path}: {reason}"


@pytest.mark.parametrize("kind", ["missing", "empty", "noise", "damaged", "sound", "one_frame"])
def test_a_video_that_cannot_be_shown_fails_with_its_reason_and_the_others_are_answered(
    kind, checkpoint, environment, tmp_path, tgv
):
    path, reason = unusable(kind, tmp_path)
    task = toy.ToyTask(
        [{"text": "what?", "images": [path]}, {"text": "what?", "images": [toy.video(tmp_path / "good.mp4")]}]
    )
    for family, wrapper in itertools.product(WITH_VIDEO, ("chat", "simple")):
        store = environment / f"{family}-{wrapper}"
        answers = toy.ask(toy.wrapper(checkpoint(family), wrapper, store=store, batch_size=2), task)
        broken, good = sorted(toy.records(store), key=lambda record: record["doc_id"])
        assert (broken["status"], broken["answer"], answers[0]) == ("failed", None, "")
        assert reason in broken["error"]
        assert "\n" not in broken["error"]
        assert good["status"] == "ok"
        assert answers[1]


@pytest.mark.parametrize(
    ("name", "codec", "pixels"),
    [("a.mp4", "mpeg4", "yuv420p"), ("b.mkv", "ffv1", "bgr0"), ("c.mp4", "libx264", "yuv420p")],
)
def test_frames_are_those_that_decord_reads(name, codec, pixels, tmp_path):
    path = toy.video(tmp_path / name, codec=codec, pixels=pixels)
    clip = video.read(path, lambda total, fps: [0, 3, 3, total - 1])
    reader = decord.VideoReader(path)
    assert (clip.total, clip.fps) == (len(reader), reader.get_avg_fps()) == (12, 4.0)
    assert np.array_equal(clip.frames, reader.get_batch([0, 3, 3, 11]).asnumpy())


def test_a_lossless_file_gives_back_what_was_written(tmp_path):
    path = toy.video(tmp_path / "clip.mkv", codec="ffv1", pixels="bgr0")
    assert np.array_equal(video.read(path, video.uniform(12)).frames[5], np.asarray(toy.picture(5, 64, 64)))


@pytest.mark.parametrize(
    "asked",
    [
        {"nframes": 8},
        {"fps": 2.0, "max_frames": 8},
        {"nframes": 4, "min_pixels": 28 * 28, "max_pixels": 32 * 32},
        {"nframes": 6, "min_pixels": 4 * 32 * 32, "max_pixels": 16 * 32 * 32},
        {"fps": 4.0, "total_pixels": 20 * 32 * 32, "min_pixels": 4 * 32 * 32},
        {"nframes": 4, "video_start": 0.5, "video_end": 2.5},
        {},
    ],
)
@pytest.mark.parametrize("patch_size", [14, 16])
def test_sampling_and_sizes_are_those_of_qwen_vl_utils(asked, patch_size, tmp_path):
    element = {"type": "video", "video": toy.video(tmp_path / "clip.mp4"), **asked}
    frames, metadata = load_video(element, patch_size)
    expected, described = fetch_video(element, image_patch_size=patch_size, return_video_metadata=True)
    assert frames.shape == expected.shape
    assert bool((frames == expected).all())
    assert metadata | {"video_backend": "decord"} == described


def test_pictures_beside_a_video_are_loaded_in_their_order(tmp_path):
    content = [
        {"type": "image", "image": toy.picture(1)},
        {"type": "video", "video": toy.video(tmp_path / "clip.mp4"), "nframes": 4},
        {"type": "image", "image": toy.picture(2, 64, 64)},
    ]
    messages = [[{"role": "user", "content": content}]]
    images, videos, metadata = load_media(messages, patch_size=16)
    assert [image.tobytes() for image in images] == [
        image.tobytes() for image in process_vision_info(messages, image_patch_size=16)[0]
    ]
    assert (len(videos), metadata[0]["frames_indices"]) == (1, [0, 4, 7, 11])
    assert load_media([[{"role": "user", "content": "text"}]], patch_size=16) == (None, None, None)


@pytest.mark.parametrize(("frames", "shown"), [(2, 2), (3, 2), (7, 6), (8, 8), (9, 8), (40, 8)])
def test_a_request_for_more_frames_is_rounded_down_to_what_there_is(frames, shown):
    assert len(chosen_frames({"nframes": 8}, frames, 4.0)) == shown


@pytest.mark.parametrize("wrapper", ["chat", "simple"])
@pytest.mark.parametrize("family", WITH_VIDEO)
def test_a_short_video_is_answered(family, wrapper, checkpoint, environment, tmp_path, tgv):
    docs = [{"text": "what?", "images": [toy.video(tmp_path / f"{n}.mp4", frames=n)]} for n in (2, 3, 7, 12)]
    answers = toy.ask(toy.wrapper(checkpoint(family), wrapper), toy.ToyTask(docs))
    vision = [record["eviction"]["vision_tokens"] for record in toy.records(environment)]
    assert all(answers)
    if family != "llava_onevision":  # which repeats frames, as in stock
        assert vision[0] == vision[1] < vision[2] < vision[3]


def test_a_few_frames_that_are_missing_at_the_end_are_not_counted(tmp_path, monkeypatch):
    path = toy.video(tmp_path / "clip.mp4", frames=10)
    monkeypatch.setattr(video, "_measure", lambda path: (11, 4.0))
    assert video.read(path, video.uniform(4)).indices == [0, 3, 6, 9]
    monkeypatch.setattr(video, "_measure", lambda path: (20, 4.0))
    with pytest.raises(video.VideoError, match="only 10 of its 20 frames are there"):
        video.read(path, video.uniform(4))


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_a_sweep_over_videos_and_pictures_gives_what_each_configuration_gives_alone(
    family, checkpoint, environment, tmp_path, monkeypatch
):
    path = tmp_path / "sweep.yaml"
    path.write_text("retention: [0.1]\nmethods: [tgv_kv, {method: h2o, decode: evict}]\n")
    for name, value in grid.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    docs = [
        {"text": "what happens, and when?", "images": [toy.video(tmp_path / "long.mp4")]},
        {"text": "what?", "images": [toy.picture(1)]},
        {"text": "and now?", "images": [toy.video(tmp_path / "short.mp4", frames=3)]},
        {"text": "no picture", "images": []},
    ]
    alone = separately(checkpoint(family), path, environment / "alone", docs, monkeypatch)
    shared = together(checkpoint(family), path, environment / "shared", docs, monkeypatch, batch=4)
    assert len({record["answer"] for samples in alone.values() for record in samples.values()}) > 4
    assert_equal(shared, alone)


def test_the_limit_for_one_picture_is_none_for_frames(checkpoint, environment, tmp_path, tgv, monkeypatch):
    docs = [{"text": "what?", "images": [toy.picture(0, 192, 192), toy.video(tmp_path / "clip.mp4")]}]
    for tokens in ("", "9"):
        monkeypatch.setenv("IMAGE_MAX_TOKEN_NUM", tokens)
        toy.ask(toy.wrapper(checkpoint("qwen3_vl")), toy.ToyTask(docs))
    frames = 4 * 4  # pairs of frames, tokens of each
    assert [record["eviction"]["vision_tokens"] for record in toy.records(environment)] == [36 + frames, 9 + frames]

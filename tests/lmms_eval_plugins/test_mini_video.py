"""The mini video tasks: the generator's videos on disk without loss, five ways to ask, and a model that fits them."""

from pathlib import Path

import datasets
import decord
import huggingface_hub
import numpy as np
import pytest
import yaml
from lmms_eval.evaluator import simple_evaluate
from lmms_eval.tasks import TaskManager

from lmms_eval_plugins import checkpoint as checkpoints
from lmms_eval_plugins import checks, preflight, video
from lmms_eval_plugins.families import QWEN3_VL
from lmms_eval_plugins.settings import resolve
from lmms_eval_plugins.tasks import mini_video
from lmms_eval_plugins.tasks.mini_video import dataset, scoring
from tiny_vlm.video.data import KINDS, make_samples
from tiny_vlm.video.model import build_model
from tiny_vlm.video.processor import build_processor

from . import toy

FOLDER = Path(mini_video.__file__).parent
TASKS = [f"mini_video_{style}" for style in ("primary", "paraphrase", "wrong_leading", "correct_leading", "mc")]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(dataset, "SAMPLES", 6)
    return tmp_path / "mini_vlm"


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """The embedded model's checkpoint before training."""
    folder = tmp_path_factory.mktemp("tiny-video")
    processor = build_processor()
    build_model(processor.tokenizer).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def test_a_video_file_holds_the_generator_s_frames_for_every_reader(cache):
    for kind in KINDS:
        sample = make_samples(kind, "test", 1)[0]
        path = str(dataset.video_path(sample.id))
        clip = video.read(path, lambda total, fps: range(total))
        assert np.array_equal(clip.frames, sample.frames)
        assert (clip.total, clip.fps) == (len(sample.frames), sample.fps)
        assert np.array_equal(decord.VideoReader(path).get_batch(range(clip.total)).asnumpy(), sample.frames)
    assert [path.name for path in cache.iterdir()] == [f"video-test-6-{dataset.generator_version()}"]


def test_every_split_asks_its_way_about_the_same_videos():
    splits = datasets.load_from_disk(dataset.path)
    assert splits["primary"]["capability"] == [*KINDS, *KINDS[:2]]
    order = make_samples("order", "test", 2)[1]
    for split, field in dataset.SPLITS.items():
        row = splits[split][5]
        assert row["video_id"] == order.id
        assert row["question"] == getattr(order, field)
        assert (row["answer"], row["answers"]) == (order.answer, list(order.answers))
        assert order.options["ABCD".index(row["letter"])] == order.options[order.correct]
    with pytest.raises(AttributeError):
        dataset.__getattr__("music_path")


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("B", "B"),
        ("b.", "B"),
        ("(C) a star", "C"),
        ("The answer is D.", "D"),
        ("the answer is a", "A"),
        ("Option B: 5 seconds", "B"),
        ("a star", None),
        ("Because the answer is (C)", "C"),
        ("seconds", None),
        ("", None),
    ],
)
def test_the_letter_of_an_answer(answer, letter):
    scores = {right: scoring.choice_results({"letter": right}, [answer])["exact_match"] for right in "ABCD"}
    assert scores == {right: float(right == letter) for right in "ABCD"}


@pytest.mark.parametrize("judge", ["exact", "none"])
def test_the_group_runs_on_its_model_and_is_scored_by_the_judge_of_video_tt(
    judge, untrained, environment, monkeypatch, tgv
):
    monkeypatch.setenv("KV_JUDGE", judge)
    monkeypatch.setenv("MODEL_TYPE", "tiny-video")
    monkeypatch.setenv("MAX_GENERATED_TOKENS", "4")
    manager = TaskManager(include_path=str(FOLDER), include_defaults=False)
    model = toy.wrapper(untrained, batch_size=2, min_pixels=None, max_pixels=None, max_num_frames=None)
    found = simple_evaluate(model=model, tasks=["mini_video"], task_manager=manager, limit=2)
    assert sorted(found["samples"]) == sorted(TASKS)
    for task in TASKS:
        metric = "exact_match" if task.endswith("_mc") else "videott_open_ended_score"
        samples = found["samples"][task]
        assert len(samples) == 2
        if metric != "exact_match":
            assert [sample[metric].get("score") for sample in samples] == (
                [0.0, 0.0] if judge == "exact" else [None] * 2
            )
    records = toy.records(environment)
    assert len(records) == 10
    assert {record["eviction"]["vision_tokens"] for record in records} == {8 * 49}
    assert {record["status"] for record in records} == {"ok"}


def test_the_prompt_is_the_one_it_was_trained_with(untrained, monkeypatch):
    monkeypatch.setenv("MODEL_TYPE", "tiny-video")
    sample = make_samples("motion", "test", 1)[0]
    task = toy.ToyTask([{"text": sample.question, "images": [str(dataset.video_path(sample.id))]}])
    model = toy.wrapper(untrained, min_pixels=None, max_pixels=None, max_num_frames=None)
    model.task_dict = {toy.TASK: {toy.SPLIT: task.docs}}
    request = model.asked(task.requests(chat=True))[0].request
    ids = model.build_inputs([request])["input_ids"][0]
    text = model.tokenizer.decode([token for token in ids if token != model.model.config.video_token_id])
    times = "".join(f"<{second}.2 seconds><|vision_start|><|vision_end|>" for second in range(8))
    start, end = "<|im_start|>", "<|im_end|>"
    said = f"{start}user <|vision_start|>{times}<|vision_end|>{sample.question}{end}{start}assistant"
    assert "".join(text.split()) == "".join(said.split())


def test_a_row_s_arguments_hold_unless_others_are_given(untrained, monkeypatch):
    def options(env=None, **given):
        run = resolve(QWEN3_VL, "chat", {"pretrained": str(untrained), **given}, env or {})
        return run.options["min_pixels"], run.options["max_pixels"], run.options["system_prompt"], run.fingerprint

    row = {"MODEL_TYPE": "tiny-video"}
    assert options()[:3] == (200704, 1605632, "You are a helpful assistant.")
    assert options(row)[:3] == (4096, 50176, "")
    assert options(row, max_pixels=9000)[:3] == (4096, 9000, "")
    assert len({options()[3], options(row)[3], options(row, max_pixels=9000)[3]}) == 3
    rows = {"here": {"checkpoint": str(untrained), "model_args": {"min_pixels": 4096}}}
    monkeypatch.setattr(checkpoints, "model_rows", lambda: rows)
    assert options()[0] == 4096


def test_offline_and_without_a_key_nothing_is_missing(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("KV_JUDGE", "exact")
    for name in ("OPENAI_API_KEY", "GPT_EVAL_MODEL_NAME"):
        monkeypatch.delenv(name, raising=False)
    assert checks.problems(preflight.parse(["--tasks", "mini_video"]), None) == []
    monkeypatch.setenv("KV_JUDGE", "api")
    assert any(
        "mini_video_primary" in line for line in checks.problems(preflight.parse(["--tasks", "mini_video"]), None)
    )
    assert checks.problems(preflight.parse(["--tasks", "mini_video_mc"]), None) == []


def test_the_limit_of_new_tokens_leaves_room_for_every_answer():
    tokenizer = build_processor().tokenizer
    limit = yaml.safe_load((FOLDER / "_mini_video_template_yaml").read_text().replace("!function ", ""))
    longest = max(len(tokenizer(sample.answer).input_ids) for sample in make_samples("describe", "test", 50))
    assert 40 < longest < limit["generation_kwargs"]["max_new_tokens"]

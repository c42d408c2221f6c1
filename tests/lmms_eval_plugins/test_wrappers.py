"""The wrappers answer as lmms-eval's own do, whatever the batch, and prove what they evicted."""

import importlib
import itertools

import pytest
from lmms_eval.models import registry_v2  # noqa: F401  (lmms-eval's own wrappers import through its registry)

from . import toy
from .checkpoints import BUILD, lmms_name

FAMILIES = list(BUILD)
KINDS = ("chat", "simple")
STOCK = {"llava_hf": "LlavaHf", "qwen3_vl": "Qwen3_VL", "qwen2_5_vl": "Qwen2_5_VL"}


def stock(checkpoint, model_type, kind, **options):
    """lmms-eval's own wrapper."""
    name = lmms_name(model_type)
    module = importlib.import_module(f"lmms_eval.models.{kind}.{name}")
    pixels = {} if name == "llava_hf" else toy.SMALL_PICTURES
    return getattr(module, STOCK[name])(pretrained=str(checkpoint), device="cpu", device_map="cpu", **pixels | options)


def compare_with_stock(task, folder, family, kind, monkeypatch, **options):
    """Without a method and with the full cache the answers are those of lmms-eval's own wrapper."""
    dtype = {} if family.startswith("llava") else {"dtype": "bfloat16"}
    reference = stock(folder, family, kind, **options)
    reference.task_dict = {toy.TASK: {toy.SPLIT: task.docs}}
    expected = reference.generate_until(task.requests(kind == "chat"))
    expected = [answer if isinstance(answer, str) else answer.text for answer in expected]
    assert all(expected)
    assert toy.ask(toy.wrapper(folder, kind, **dtype, **options), task) == expected
    monkeypatch.setenv("KV_CACHE_TYPE", "none")
    assert toy.ask(toy.wrapper(folder, kind, **dtype, **options), task) == expected
    return expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_method_and_with_the_full_cache_answers_are_those_of_stock(family, kind, checkpoint, monkeypatch):
    answers = compare_with_stock(toy.ToyTask(toy.documents()), checkpoint(family), family, kind, monkeypatch)
    assert len(set(answers)) > 1


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("llava_onevision", "simple"),
        ("qwen2_5_vl", "chat"),
        ("qwen2_5_vl", "simple"),
        ("qwen3_vl", "chat"),
        ("qwen3_vl", "simple"),
    ],
)
def test_videos_are_answered_as_in_stock(family, kind, checkpoint, monkeypatch, tmp_path, environment):
    task = toy.ToyTask([{"text": "what happens?", "images": [toy.video(tmp_path / "clip.mp4")]}])
    compare_with_stock(task, checkpoint(family), family, kind, monkeypatch)
    assert toy.records(environment)[-1]["eviction"]["vision_tokens"] >= 16


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize(
    "options", [{"fps": 1}, {"max_num_frames": 4}, {"min_pixels": 9 * 32 * 32}, {"fps": 0.5, "min_pixels": 9 * 32 * 32}]
)
def test_so_are_videos_sampled_and_resized_otherwise(family, options, checkpoint, monkeypatch, tmp_path):
    task = toy.ToyTask([{"text": "what happens?", "images": [toy.video(tmp_path / "clip.mp4", frames=20)]}])
    usual = compare_with_stock(task, checkpoint(family), family, "chat", monkeypatch)
    assert compare_with_stock(task, checkpoint(family), family, "chat", monkeypatch, **options) != usual


@pytest.mark.parametrize(("family", "kind"), list(zip(FAMILIES, itertools.cycle(KINDS))))
def test_a_padded_batch_gives_the_answers_of_single_samples(family, kind, checkpoint, tgv, environment):
    task = toy.ToyTask([*toy.documents(), {"text": "hello", "images": []}])
    single = toy.ask(toy.wrapper(checkpoint(family), kind), task)
    evictions = [record["eviction"] for record in toy.records(environment)]
    batched = toy.ask(toy.wrapper(checkpoint(family), kind, batch_size=3), task)
    assert batched == single
    later = sorted(toy.records(environment)[len(evictions) :], key=lambda record: record["doc_id"])
    same = ("prompt_tokens", "vision_tokens", "kept_text", "kept_vision", "kv_bytes_kept")
    assert [[e["eviction"][key] for key in same] for e in later] == [[e[key] for key in same] for e in evictions]


@pytest.mark.parametrize("family", FAMILIES)
def test_eviction_changes_answers_and_records_prove_it(family, checkpoint, environment, monkeypatch):
    task = toy.ToyTask(toy.documents())
    full = toy.ask(toy.wrapper(checkpoint(family)), task)
    monkeypatch.setenv("KV_CACHE_TYPE", "TGV-KV")
    monkeypatch.setenv("PRUNE_RATIO", "0.7")
    assert toy.ask(toy.wrapper(checkpoint(family)), task) != full
    plain, evicted = toy.records(environment)[:4], toy.records(environment)[4:]
    assert [record["doc_id"] for record in evicted] == [0, 1, 2, 3]
    for record in evicted:
        proof = record["eviction"]
        assert record["status"] == "ok"
        assert record["wrapper"] == "chat"
        assert record["answer_tokens"] > 1
        assert proof["vision_tokens"] > 0
        assert proof["retention_achieved"] == pytest.approx(0.3, abs=0.01)
        assert proof["kv_bytes_allocated"] == proof["kv_bytes_kept"] < proof["kv_bytes_full"]
    assert {record["eviction"] is None for record in plain} == {True}
    assert plain[0]["fingerprint"] != evicted[0]["fingerprint"]


@pytest.mark.parametrize("family", FAMILIES)
def test_several_pictures_and_none(family, checkpoint, tgv, environment):
    pictures = [toy.picture(1), toy.picture(2, 64, 64)]
    docs = [{"text": "compare", "images": pictures}, {"text": "compare", "images": pictures[:1]}]
    answers = toy.ask(toy.wrapper(checkpoint(family)), toy.ToyTask([*docs, {"text": "and now?", "images": []}]))
    vision = [record["eviction"]["vision_tokens"] for record in toy.records(environment)]
    assert vision[0] > vision[1] > vision[2] == 0
    assert all(answers)


def test_requests_with_different_arguments_keep_their_order_and_their_limits(checkpoint, environment, monkeypatch):
    monkeypatch.setenv("KV_CACHE_TYPE", "full")
    monkeypatch.setenv("MAX_GENERATED_TOKENS", "6")
    limits = [{**toy.GREEDY, "max_new_tokens": n} for n in (3, 9, 3, 5)]
    task = toy.ToyTask(toy.documents())
    answers = toy.ask(toy.wrapper(checkpoint("llava"), batch_size=2), task, limits)
    assert [len(answer) for answer in answers] == [3, 6, 3, 5]
    reasons = {record["doc_id"]: record["stop_reason"] for record in toy.records(environment)}
    assert set(reasons.values()) == {"length"}


def test_an_answer_ends_at_every_end_token_and_stop_string(checkpoint, environment):
    task = toy.ToyTask(toy.documents()[:1])
    model = toy.wrapper(checkpoint("llava"))
    answer = toy.ask(model, task)[0]
    assert len(model._eos) == 2
    cut = toy.ask(model, task, {**toy.GREEDY, "until": [answer[3:5]]})[0]
    assert cut == answer[: answer.index(answer[3:5])]
    model = toy.wrapper(checkpoint("llava"))
    model._eos = model._eos | {model.tokenizer.convert_tokens_to_ids(answer[4])}
    ended = toy.ask(model, task)[0]
    assert ended == answer[: answer.index(answer[4])]
    full, until, eos = toy.records(environment)
    assert [full["stop_reason"], until["stop_reason"], eos["stop_reason"]] == ["length", "until", "eos"]
    assert full["answer_tokens"] == 10
    assert until["answer_tokens"] <= len(cut) + 2
    assert eos["answer_tokens"] == len(ended)


def test_limits_on_vision_tokens_apply(checkpoint, environment, monkeypatch, capsys):
    task = toy.ToyTask([{"text": "what?", "images": [toy.picture(0, 192, 192)]}])
    monkeypatch.setenv("KV_CACHE_TYPE", "full")
    for kind in KINDS:
        toy.ask(toy.wrapper(checkpoint("qwen3_vl"), kind), task)
    toy.ask(toy.wrapper(checkpoint("llava_onevision")), task)
    monkeypatch.setenv("IMAGE_MAX_TOKEN_NUM", "9")
    monkeypatch.setenv("VISION_ASPECT_RATIO", "anyres_max_1")
    for kind in KINDS:
        toy.ask(toy.wrapper(checkpoint("qwen3_vl"), kind), task)
    toy.ask(toy.wrapper(checkpoint("llava_onevision")), task)
    seen = [record["eviction"]["vision_tokens"] for record in toy.records(environment)]
    assert seen[3:5] == [9, 9]
    assert seen[5] < seen[2]
    assert min(seen[:2]) > 9
    assert "IMAGE_MAX_TOKEN_NUM has no effect on llava_onevision" in capsys.readouterr().out


def test_other_request_kinds_are_refused(checkpoint):
    model = toy.wrapper(checkpoint("llava"))
    with pytest.raises(NotImplementedError):
        model.loglikelihood([])
    with pytest.raises(NotImplementedError):
        model.generate_until_multi_round([])


@pytest.mark.parametrize(
    ("decoded", "answer", "raw"),
    [
        ("it is red", "it is red", None),
        ("hm.</think>\n red ", "red", "hm.</think>\n red "),
        ("a</think>", "", "a</think>"),
    ],
)
def test_reasoning_is_cut_off_only_where_it_ends_and_is_kept_in_the_record(
    decoded, answer, raw, checkpoint, environment, monkeypatch
):
    model = toy.wrapper(checkpoint("qwen3_vl"), store=environment, enable_thinking=True)
    monkeypatch.setattr(model.tokenizer, "decode", lambda ids, **options: decoded)
    assert toy.ask(model, toy.ToyTask(toy.documents()[:1])) == [answer]
    (record,) = toy.records(environment)
    assert (record["status"], record["answer"], record["raw_answer"]) == ("ok", answer, raw)

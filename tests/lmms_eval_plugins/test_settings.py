"""What cannot be as asked is said in one line before a model is loaded; what can is in the fingerprint."""

import shutil

import pytest
import torch
import transformers

from kv_caches import ConfigError
from lmms_eval_plugins import versions
from lmms_eval_plugins.families import LLAVA, QWEN3_VL
from lmms_eval_plugins.records import configuration
from lmms_eval_plugins.settings import resolve, resolve_device
from tiny_vlm import MODEL_DIR

METHOD = {"KV_CACHE_TYPE": "tgv_kv", "PRUNE_RATIO": "0.9"}


def refusal(args, env=None, family=LLAVA):
    with pytest.raises(ConfigError) as refused:
        resolve(family, "chat", args, env or {})
    message = str(refused.value)
    assert "\n" not in message
    return message


@pytest.fixture
def good(checkpoint):
    return {"pretrained": str(checkpoint("llava")), "device_map": "cpu"}


def test_a_missing_checkpoint_is_named(good, tmp_path):
    assert "no pretrained=" in refusal({})
    assert "/no/such/folder: there is no such folder" in refusal({"pretrained": "/no/such/folder"})
    assert "HF_HUB_OFFLINE" in refusal({"pretrained": "someone/some-model"})
    assert "has no config.json" in refusal({"pretrained": str(tmp_path)})
    (tmp_path / "config.json").write_text("{}")
    assert "configuration cannot be read" in refusal({"pretrained": str(tmp_path)})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"device_map": "cuda"}, "device_map=cuda: there is no CUDA device"),
        ({"device_map": "", "device": "cuda:1"}, "device=cuda:1: there is no CUDA device"),
        ({"device_map": "", "device": "cdua:1"}, "device=cdua:1 in --model_args is unknown; allowed: cpu"),
        ({"device_map": "atuo"}, "device_map=atuo in --model_args is unknown"),
        ({"batch_size": "auto"}, "--batch_size=auto: a whole number from 1 is needed"),
        ({"batch_size": 0}, "--batch_size=0"),
        ({"dtype": "fp16"}, "dtype=fp16"),
        ({"attn_implementation": "eagre"}, "Did you mean 'eager'?"),
        ({"chat_tmplate": "x"}, "Did you mean 'chat_template'?"),
        ({"batch_size": 2.5}, "--batch_size=2.5"),
        ({"batch_size": float("inf")}, "--batch_size=inf"),
        ({"batch_size": True}, "--batch_size=True"),
        ({"dtype": 16}, "dtype=16 in --model_args"),
        ({"attn_implementation": 2}, "attn_implementation=2 in --model_args"),
        ({"device_map": "cuda:²"}, "device_map=cuda:² in --model_args"),
        ({"revision": 12}, "--model_args revision=12: text is needed"),
        ({"chat_template": 5}, "--model_args chat_template=5: text is needed"),
        ({"use_cache": 1}, "--model_args use_cache=1: True or False"),
        ({"max_frames_num": True}, "--model_args max_frames_num=True"),
        ({"pretrained": 5}, "pretrained=5: there is no such folder"),
        ({"pretrained": -1}, "pretrained=-1: there is no such folder"),
        ({"pretrained": 10**5000}, "pretrained=(a number of thousands of digits): there is no such folder"),
        ({"pretrained": "x" * 5000}, "there is no such folder"),
        ({"pretrained": "²"}, "pretrained=²: there is no such folder"),
        ({"device": 0}, "device=0 in --model_args is unknown; allowed: cpu, cuda"),
        ({"device_map": False}, "device_map=False in --model_args is unknown"),
        ({"dtype": 10**5000}, "dtype=(a number of thousands of digits) in --model_args"),
        ({"max_batch_size": 4}, "max_batch_size=4: batches have the size of --batch_size"),
        ({"kv_fingerprint": "v1-0"}, "kv_fingerprint=v1-0 in --model_args belongs to another run"),
    ],
)
def test_model_arguments_are_checked(args, message, good, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert message in refusal({**good, **args})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"max_pixels": 1024}, "max_pixels=1024 in --model_args is below min_pixels=200704"),
        ({"max_num_frames": 1}, "--model_args max_num_frames=1: a whole number from 2"),
        ({"max_num_frames": "many"}, "--model_args max_num_frames=many"),
        ({"total_pixels": 0.5}, "--model_args total_pixels=0.5"),
        ({"fps": float("nan")}, "--model_args fps=nan"),
        ({"fps": float("inf")}, "--model_args fps=inf"),
        ({"fps": True}, "--model_args fps=True"),
        ({"fps": "²"}, "--model_args fps=²"),
        ({"min_pixels": 10**5000}, "--model_args min_pixels=(a number of thousands of digits)"),
        ({"interleave_visuals": "no"}, "--model_args interleave_visuals=no"),
        ({"enable_thinking": 1}, "--model_args enable_thinking=1"),
        ({"system_prompt": 5}, "--model_args system_prompt=5"),
        ({"fps": 0}, "--model_args fps=0: a number above 0"),
    ],
)
def test_arguments_with_which_no_video_could_be_shown_are_refused(args, message, checkpoint):
    assert message in refusal({"pretrained": str(checkpoint("qwen3_vl")), **args}, family=QWEN3_VL)


def test_numbers_that_come_as_text_are_numbers(checkpoint):
    texts = {"min_pixels": " 4096", "max_pixels": "8192", "fps": "0.5", "max_num_frames": "4"}
    run = resolve(QWEN3_VL, "chat", {"pretrained": str(checkpoint("qwen3_vl")), "device_map": "cpu", **texts}, {})
    numbers = {"min_pixels": 4096, "max_pixels": 8192, "fps": 0.5, "max_num_frames": 4}
    assert {name: run.options[name] for name in texts} == numbers
    assert {name: run.given[name] for name in texts} == numbers


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"KV_CACHE_TYPE": "tgv_vk", "PRUNE_RATIO": "0.9"}, "tgv_kv"),
        ({"KV_CACHE_TYPE": "tgv_kv", "PRUNE_RATIO": "95"}, "0.95"),
        ({**METHOD, "KV_RETENTON": "0.1"}, "KV_RETENTION"),
        ({**METHOD, "MODEL_TYPE": "lava-7B"}, "llava-7B"),
        ({**METHOD, "MODEL_TYPE": "qwen-4B"}, "contradicts the loaded model"),
        ({"KV_ALLOW_FAILURES": "yes"}, "KV_ALLOW_FAILURES=yes"),
        ({"KV_DECODE_BATCH": "²"}, "KV_DECODE_BATCH=²"),
        ({"KV_DECODE_BATCH": "9" * 5000}, "KV_DECODE_BATCH=999"),
        ({"IMAGE_MAX_TOKEN_NUM": "٣٣"}, "IMAGE_MAX_TOKEN_NUM=٣٣"),
        ({"VISION_ASPECT_RATIO": "anyres_max_9\n"}, "VISION_ASPECT_RATIO=anyres_max_9"),
        ({"IMAGE_MAX_TOKEN_NUM": "many"}, "IMAGE_MAX_TOKEN_NUM=many"),
        ({"VISION_ASPECT_RATIO": "pad"}, "anyres_max_9"),
    ],
)
def test_the_environment_is_checked(env, message, good):
    assert message in refusal(good, env)


def test_a_checkpoint_of_another_family_and_a_missing_cache_are_refused(good):
    assert "is a llava" in refusal(good, family=QWEN3_VL)
    assert "nothing to evict from" in refusal({**good, "use_cache": False}, METHOD)


def test_the_fingerprint_names_what_can_change_an_answer_and_nothing_else(good, tmp_path):
    def fingerprint(args=good, env=METHOD, wrapper="chat"):
        return resolve(LLAVA, wrapper, args, env).fingerprint

    copy = shutil.copytree(good["pretrained"], tmp_path / "copy")
    assert fingerprint({**good, "pretrained": str(copy)}) == fingerprint()
    assert fingerprint({**good, "batch_size": 4, "kv_fingerprint": fingerprint()}) == fingerprint()
    different = [
        fingerprint(env={}),
        fingerprint(env={"KV_CACHE_TYPE": "none"}),
        fingerprint(env={**METHOD, "PRUNE_RATIO": "0.8"}),
        fingerprint(env={**METHOD, "MAX_GENERATED_TOKENS": "8"}),
        fingerprint(wrapper="simple"),
        fingerprint({**good, "dtype": "bfloat16"}),
        fingerprint({**good, "max_frames_num": 8}),
    ]
    (copy / "generation_config.json").write_text("{}")
    different.append(fingerprint({**good, "pretrained": str(copy)}))
    assert len({fingerprint(), *different}) == len(different) + 1


def test_other_versions_of_what_computes_an_answer_are_another_fingerprint(good, monkeypatch):
    def fingerprint(**changed):
        monkeypatch.setattr(versions, "deciding", lambda: known | changed)
        return resolve(LLAVA, "chat", good, METHOD).fingerprint

    known = versions.deciding()
    assert known["torch"] == torch.__version__.split("+")[0]
    assert known["transformers"] == transformers.__version__
    assert fingerprint() == fingerprint()
    assert len({fingerprint(), fingerprint(torch="2.0"), fingerprint(transformers="5.0"), fingerprint(av=None)}) == 4


def test_the_row_follows_from_the_model_unless_it_is_named(good, tmp_path):
    def named(pretrained, **env):
        args = good | {"pretrained": str(pretrained)}
        return resolve(LLAVA, "chat", args, METHOD | {"KV_SWEEP": "quickstart"} | env)

    copy = shutil.copytree(MODEL_DIR, tmp_path / "a" / "copy")
    run = named(copy)
    assert {kv.model_type for kv in (run.kv, *run.sweep)} == {"tiny-vlm"}
    assert run.fingerprint == named(copy, MODEL_TYPE="tiny-vlm").fingerprint == named(MODEL_DIR).fingerprint
    assert (
        configuration(run, 1)["row"] == "tiny-vlm" == resolve(LLAVA, "chat", good | {"pretrained": str(copy)}, {}).row
    )
    assert named(good["pretrained"]).kv.model_type is None
    with pytest.raises(ConfigError, match=r"MODEL_TYPE='llava-7B' contradicts the loaded model: .*; use tiny-vlm"):
        named(copy, MODEL_TYPE="llava-7B")


def test_processes_share_the_gpus_out(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    second = {"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    assert resolve_device(None, "auto", {}) == ("cuda", "auto")
    assert resolve_device(None, None, {}) == ("cuda", "cuda")
    assert resolve_device("cuda", "auto", second) == ("cuda:1", "cuda:1")
    assert resolve_device(None, "cpu", second) == ("cpu", "cpu")
    with pytest.raises(ConfigError, match="--num_processes=2"):
        resolve_device(None, "auto", {"LOCAL_WORLD_SIZE": "3"})
    with pytest.raises(ConfigError, match=r"cuda:2 .* 2 CUDA device\(s\)"):
        resolve_device("cuda:2", None, {})


def test_without_a_gpu_auto_means_the_cpu_in_float32(good, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    run = resolve(LLAVA, "chat", {**good, "device_map": "auto"}, {})
    assert (run.device, run.device_map, run.dtype) == ("cpu", "cpu", "float32")

"""PrefixKV's offline profile: measured on prompts, written per ratio, read strictly, part of the fingerprint."""

import json
import re
from pathlib import Path

import pytest
import torch
from PIL import Image

from kv_caches import ConfigError, KVConfig, attach
from kv_caches.profile import main, measure, read_prompts, write
from tests.models import build
from tests.prompts import inputs


@pytest.fixture(scope="module")
def model():
    return build("llava")


@pytest.fixture(scope="module")
def prompts(model):
    return [inputs(model, "image"), inputs(model, "text", "two_images", seed=3)]


@pytest.fixture
def folder(model, prompts, tmp_path):
    for retention in (0.3, 0.5):
        write(measure(model, prompts, retention), tmp_path)
    return tmp_path


def test_a_profile_is_the_mean_of_what_the_online_search_forgets(model, prompts, folder):
    profile = json.loads((folder / "0.3.json").read_text())
    shares = []
    with attach(model, KVConfig(method="prefix_kv", retention=0.3)) as attachment, torch.no_grad():
        for batch in prompts:
            model(**batch)
            for record, kept in zip(attachment.take_records(), attachment.kept):
                shares.append([1 - sets[0].numel() / record["prompt_tokens"] for sets in kept])
    assert profile["prompts"] == len(shares) == 3
    assert profile["evicted"] == pytest.approx(torch.tensor(shares).double().mean(0).tolist())
    assert sum(profile["evicted"]) / 4 == pytest.approx(0.7, abs=0.05)


def test_offline_forgets_the_profiles_share_of_every_prompt(model, prompts, folder):
    config = KVConfig(method="prefix_kv", variant="offline", retention=0.5, profile=str(folder))
    shares = json.loads((folder / "0.5.json").read_text())["evicted"]
    with attach(model, config) as attachment, torch.no_grad():
        model(**prompts[1])
        for record, kept in zip(attachment.take_records(), attachment.kept):
            n = record["prompt_tokens"]
            assert [n - sets[0].numel() for sets in kept] == [min(round(s * n), n - 5) for s in shares]
            assert all({0, 1, 2, 3, n - 1} <= set(sets[0].tolist()) for sets in kept)


def test_the_profile_is_part_of_the_fingerprint(folder):
    config = KVConfig(method="prefix_kv", variant="offline", retention=0.5, profile=str(folder))
    before = config.fingerprint()
    data = json.loads((folder / "0.5.json").read_text())
    (folder / "0.5.json").write_text(json.dumps(data | {"evicted": [0.5] * 4}))
    assert config.fingerprint() != before
    assert KVConfig(method="h2o", retention=0.5).fingerprint() == KVConfig(method="h2o", retention=0.5).fingerprint()


ENV = {"KV_CACHE_TYPE": "prefix_kv", "KV_VARIANT": "offline", "KV_RETENTION": "0.2"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist; make it with `python -m kv_caches.profile --retention 0.2`"),
        ("[]", "is not a profile of"),
        ('{"retention": 0.5, "evicted": [0.5]}', "was made for retention 0.5, not 0.2"),
        ('{"retention": 0.2, "evicted": [1.5]}', "must hold one share in [0, 1) per layer"),
        ('{"retention": NaN, "evicted": [0.5]}', "was made for retention nan, not 0.2"),
        ("[" * 100_000, "is not a profile of"),
        ('{"retention": 1, "evicted": [1' + "0" * 400 + "]}", "is not a profile of"),
    ],
)
def test_a_wrong_profile_is_one_clear_line(tmp_path, content, message):
    if content is not None:
        (tmp_path / "0.2.json").write_text(content)
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        KVConfig.from_env(ENV | {"KV_PROFILE": str(tmp_path)})
    assert "\n" not in str(error.value)


def test_a_profile_that_cannot_be_read_is_one_clear_line(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"KV_PROFILE='x+': .* does not exist"):
        KVConfig.from_env(ENV | {"KV_PROFILE": "x" * 290})

    def read_bytes(path):
        raise OSError(5, "Input/output error")

    (tmp_path / "0.2.json").touch()
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    with pytest.raises(ConfigError, match=r"0\.2\.json cannot be read: Input/output error"):
        KVConfig.from_env(ENV | {"KV_PROFILE": str(tmp_path)})


def test_offline_without_a_profile_and_a_profile_without_offline():
    with pytest.raises(ConfigError, match="needs KV_PROFILE"):
        KVConfig.from_env(ENV)
    with pytest.raises(ConfigError, match="needs KV_PROFILE"):
        KVConfig.from_env(ENV | {"KV_PROFILE": ""})
    with pytest.raises(ConfigError, match="h2o \\(variant paper\\) reads no profile"):
        KVConfig(method="h2o", retention=0.5, profile="x.json")
    with pytest.raises(ConfigError, match="KV_PROFILE='x' is set but KV_CACHE_TYPE is not"):
        KVConfig.from_env({"KV_PROFILE": "x"})


def test_a_profile_of_another_model_is_refused(prompts, model, tmp_path):
    (tmp_path / "0.2.json").write_text('{"retention": 0.2, "evicted": [0.8, 0.8]}')
    config = KVConfig(method="prefix_kv", variant="offline", retention=0.2, profile=str(tmp_path / "0.2.json"))
    with (
        attach(model, config),
        torch.no_grad(),
        pytest.raises(ConfigError, match="has 2 layers, the model 4"),
    ):
        model(**prompts[0])


def test_prompts_are_checked_before_a_model_is_loaded(tmp_path, capsys):
    file = tmp_path / "prompts.jsonl"
    base = ["--model", "nowhere", "--prompts", str(file), "--output", str(tmp_path), "--retention", "0.2"]
    assert main(base) == 2
    assert "no such file" in capsys.readouterr().err
    file.write_text('{"prompt": "a", "images": ["b.png"]}\n')
    assert main(base) == 2
    assert "b.png does not exist" in capsys.readouterr().err
    file.write_text("what?\n")
    assert main(base) == 2
    assert "line 1 must be" in capsys.readouterr().err
    file.write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    assert [entry["prompt"] for entry in read_prompts(file, limit=1)] == ["a"]
    assert main([*base[:-1], "2"]) == 2
    assert "KV_RETENTION=2.0 must be in (0, 1]" in capsys.readouterr().err


def test_the_command_measures_a_checkpoint(tmp_path, capsys):
    checkpoints = pytest.importorskip("tests.lmms_eval_plugins.checkpoints")
    checkpoint = checkpoints.llava(tmp_path / "model")
    Image.new("RGB", (20, 20), "red").save(tmp_path / "red.png")
    lines = [{"prompt": "what colour is this?", "images": ["red.png"]}, {"prompt": "a question without a picture"}]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    files = ["--model", str(checkpoint), "--prompts", str(tmp_path / "prompts.jsonl"), "--output", str(tmp_path / "p")]
    assert main([*files, "--retention", "0.3", "0.5", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "p" / f"{r}.json") for r in (0.3, 0.5)]
    profile = json.loads((tmp_path / "p" / "0.5.json").read_text())
    assert profile["prompts"] == 2
    assert profile["model"] == str(checkpoint)
    config = KVConfig("prefix_kv", 0.5, "offline", profile=str(tmp_path / "p"))
    assert config.build().budget.evicted == tuple(profile["evicted"])

"""A checkpoint that cannot answer is refused in one line before the first answer, most of them before weights load."""

import json
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText

from kv_caches import ConfigError
from lmms_eval_plugins import checkpoint as checkpoints
from lmms_eval_plugins.errors import RunStopped
from lmms_eval_plugins.models import llava_hf

from . import toy

HEAD, LAYER = "language_model.lm_head.weight", "language_model.model.layers.1.self_attn.q_proj.weight"


@pytest.fixture
def changed(checkpoint, tmp_path):
    """A copy of the tiny LLaVA with other weights or another configuration."""

    def copy(change, config=None):
        folder = shutil.copytree(checkpoint("llava"), tmp_path / "changed")
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | (config or {})))
        return folder

    return copy


def refusal(folder, capsys, kind="chat"):
    model = toy.wrapper(folder, kind)
    with pytest.raises(RunStopped):
        toy.ask(model, toy.ToyTask(toy.documents()[:1]))
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert f"pretrained={folder} cannot be loaded: " in line
    assert not toy.records(folder.parent / "records")
    return line


def test_missing_weights_are_named_before_the_first_answer(changed, capsys):
    line = refusal(changed(lambda weights: weights.pop(LAYER)), capsys)
    assert "1 of its weights are missing or of another shape" in line
    assert "model.language_model.layers.1.self_attn.q_proj.weight" in line


def test_so_are_those_of_another_shape(changed, capsys):
    line = refusal(changed(lambda weights: weights.update({LAYER: torch.zeros(3, 64)})), capsys)
    assert "model.language_model.layers.1.self_attn.q_proj.weight (3, 64) instead of (64, 64)" in line


def test_an_adapter_that_was_exported_unmerged_is_recognised(changed, capsys):
    def unmerge(weights):
        for name in [name for name in weights if "q_proj" in name]:
            weights[name.replace("q_proj.", "q_proj.base_layer.")] = weights.pop(name)
            weights[name.replace("q_proj.", "q_proj.lora_A.default.")] = torch.zeros(4, 64)

    line = refusal(changed(unmerge), capsys)
    assert "an adapter that is not merged: merge it into its model (peft: PeftModel.merge_and_unload()" in line


def test_tied_and_derived_tensors_do_not_stop_a_run(changed):
    folder = changed(lambda weights: weights.pop(HEAD), {"tie_word_embeddings": True})
    assert all(toy.ask(toy.wrapper(folder), toy.ToyTask(toy.documents()[:1])))
    loaded = {"missing_keys": {"rotary_emb.inv_freq"}, "mismatched_keys": set(), "unexpected_keys": set()}
    checkpoints.check_whole(loaded, {"lm_head.weight"})


def test_many_are_counted():
    names = {f"layer.{i}.weight" for i in range(9)}
    with pytest.raises(ConfigError, match=r"9 of its weights .*: layer.0.weight, .*layer.4.weight and 4 more\."):
        checkpoints.check_whole({"missing_keys": names, "mismatched_keys": set(), "unexpected_keys": set()}, names)


def test_the_folder_of_an_adapter_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"is an adapter \(adapter_config.json\) and no whole model; merge it into"):
        checkpoints.locate(str(tmp_path), "main")


@pytest.fixture
def untemplated(changed):
    folder = changed(lambda weights: None)
    (folder / "chat_template.jinja").unlink()
    return folder


def test_without_a_chat_template_no_weights_are_loaded(untemplated, capsys, monkeypatch):
    monkeypatch.setattr(AutoModelForImageTextToText, "from_pretrained", lambda *a, **k: pytest.fail("loaded"))
    assert "it has no chat template (chat_template.jinja)" in refusal(untemplated, capsys)


def test_vicunas_template_is_lmms_evals_also_where_its_module_cannot_be_imported(monkeypatch):
    from lmms_eval.models.simple.llava_hf import VICUNA_CHAT_TEMPLATE

    monkeypatch.setitem(sys.modules, "decord", None)
    monkeypatch.delitem(sys.modules, "lmms_eval.models.simple.llava_hf")
    llava_hf._vicuna_template.cache_clear()
    assert llava_hf._vicuna_template() == VICUNA_CHAT_TEMPLATE


def test_simple_prompts_then_use_vicunas_and_say_so(untemplated, capsys):
    assert all(toy.ask(toy.wrapper(untemplated, "simple"), toy.ToyTask(toy.documents()[:1])))
    assert "prompts are made with Vicuna's, as in lmms-eval" in capsys.readouterr().out


def test_a_template_given_for_simple_prompts_is_not_ignored_in_silence(checkpoint, capsys):
    asked = toy.ToyTask(toy.documents()[:1])
    toy.ask(toy.wrapper(checkpoint("llava"), chat_template="{{ messages }}"), asked)
    assert "chat_template in --model_args has no effect on chat prompts: add --force_simple" in capsys.readouterr().out
    toy.ask(toy.wrapper(checkpoint("llava"), "simple", chat_template="{{ messages[0]['content'] }}"), asked)
    assert "chat_template" not in capsys.readouterr().out

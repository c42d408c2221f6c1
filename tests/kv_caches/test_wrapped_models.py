"""Models in a wrapper: adapters work, compiled code is refused by its name, others say what to attach instead."""

import copy

import pytest
import torch
from torch import nn

from kv_caches import KVConfig, UnsupportedError, attach
from kv_caches.kernels import COMPILED
from tests.models import build
from tests.prompts import inputs

TGV = KVConfig("tgv_kv", 0.3)


def compiled(part):
    return torch.compile(part, backend="eager")


def whole(model):
    return compiled(model)


def in_place(model):
    model.compile(backend="eager")
    return model


def forward(model):
    model.forward = compiled(model.forward)
    return model


def one_layer(model):
    layers = model.get_decoder().layers
    layers[1] = compiled(layers[1])
    return model


def language_model(model):
    model.get_decoder().compile(backend="eager")
    return model


@pytest.mark.parametrize("how", [whole, in_place, forward, one_layer, language_model], ids=lambda f: f.__name__)
def test_compiled_code_around_the_layers_is_refused_in_one_line(how):
    model = how(copy.deepcopy(build("llava")))
    with pytest.raises(UnsupportedError) as caught:
        attach(model, TGV)
    assert str(caught.value) == COMPILED
    assert "torch.compile" in COMPILED
    assert "\n" not in COMPILED


def test_so_is_a_model_that_is_compiled_while_attached():
    model = copy.deepcopy(build("llava"))
    with attach(model, TGV), torch.no_grad():
        forward(model)
        with pytest.raises(UnsupportedError, match="is compiled"):
            model.generate(**inputs(model, "image"), max_new_tokens=2)


def test_a_compiled_vision_tower_is_no_obstacle():
    model = copy.deepcopy(build("llava"))
    model.model.vision_tower.compile(backend="eager")
    with attach(model, TGV) as attachment:
        model.generate(**inputs(model, "image"), max_new_tokens=2, do_sample=False)
        assert len(attachment.take_records()) == 1


@pytest.mark.parametrize("task", ["CAUSAL_LM", None])
def test_an_unmerged_adapter_is_evicted_from_as_the_merged_one(task):
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    settings = LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type=task)
    adapted = get_peft_model(copy.deepcopy(build("llava")), settings).eval()
    merged, batch = copy.deepcopy(adapted).merge_and_unload(), inputs(build("llava"), "image")
    found = []
    for model in (adapted, merged):
        with attach(model, TGV) as attachment, torch.no_grad():
            answer = model.generate(**batch, max_new_tokens=4, do_sample=False)
            logits = model(**batch).logits
            found.append((answer, logits, attachment.take_records()))
    (answer, logits, records), (expected, theirs, proof) = found
    assert torch.equal(answer, expected)
    assert (logits - theirs).abs().max() < 1e-5 * theirs.abs().max()
    assert records == proof
    assert len(records) == 2


def test_other_wrappers_say_what_to_attach():
    with pytest.raises(UnsupportedError, match=r"DataParallel is no transformers model.*its \.module"):
        attach(nn.DataParallel(build("llava")), TGV)
    with pytest.raises(UnsupportedError, match="Linear is no transformers model"):
        attach(nn.Linear(2, 2), TGV)

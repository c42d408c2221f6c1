"""NaN and infinity never rank anything: a prompt with such numbers fails and says in which layer and by what."""

from dataclasses import replace

import pytest
import torch

from kv_caches import KVConfig, UnsupportedError, attach, registry
from kv_caches.shared import SharedPrefill
from kv_caches.statistics import PrefillStats
from tests.models import build as model_of
from tests.prompts import inputs

from .support import at_any_share, build, prompt_of, random_view

PROMPT = prompt_of("TTTTVVVVVVVVVVVVTTTT")
BROKEN = 1


def stats_with(value, needs, layers=3):
    """Statistics of random layers; in one of them a key and a value have a feature of this value."""
    stats = PrefillStats(PROMPT, layers)
    for layer in range(layers):
        view = random_view(PROMPT, layer)
        if layer == BROKEN:
            for tensor in (view.queries, view.keys, view.values, view.hidden):
                tensor[..., 7, 2] = value
        stats.collect(layer, view, needs)
    return stats


def measuring():
    return [(name, variant) for name, variant in at_any_share() if registry.build(name, variant).needs]


@pytest.mark.parametrize("value", [torch.nan, torch.inf], ids=str)
@pytest.mark.parametrize(("name", "variant"), measuring())
def test_no_method_ranks_by_numbers_that_are_none(name, variant, value):
    method = build(name, variant)
    assert method.select(stats_with(0.5, method.needs), 0.5).kept
    with pytest.raises(UnsupportedError, match=rf"^layer {BROKEN}: .*: not finite \(NaN or infinite\)") as caught:
        method.select(stats_with(value, method.needs), 0.5)
    named = {need.name for need in method.needs} | {f"scores of {name}"}
    assert any(f"layer {BROKEN}: {what}: " in str(caught.value) for what in named)


def test_scores_that_are_none_are_named_although_what_was_measured_is_sound():
    class Divides:
        def score(self, stats, layer, budget):
            return torch.zeros(1, stats.prompt.length) / 0

    method = replace(registry.build("streaming_llm", "paper"), scorer=Divides())
    with pytest.raises(UnsupportedError, match="layer 0: scores of streaming_llm: not finite"):
        method.select(PrefillStats(PROMPT, 2), 0.5)


@pytest.fixture
def broken_model():
    """A model with a NaN among the weights of its second layer's keys."""
    model = model_of.__wrapped__("llava")
    with torch.no_grad():
        model.get_decoder().layers[BROKEN].self_attn.k_proj.weight[3, 3] = torch.nan
    return model


@pytest.mark.parametrize("method", ["tgv_kv", "snapkv", "fastv", "knorm"])
def test_a_prompt_fails_with_its_reason_and_leaves_no_record(broken_model, method):
    batch, retention = inputs(broken_model, "image"), 0.9 if method == "fastv" else 0.3
    with attach(broken_model, KVConfig(method, retention)) as attachment, torch.no_grad():
        with pytest.raises(UnsupportedError, match=r"^layer [12]: .*not finite.*try bfloat16 or float32"):
            broken_model(**batch)
        assert attachment.take_records() == []


def test_forks_fail_one_by_one(broken_model):
    configs = [KVConfig(), KVConfig("snapkv", 0.3)]
    with SharedPrefill(broken_model, configs) as shared, torch.no_grad():
        broken_model(**inputs(broken_model, "image"))
        assert shared.fork([(0, configs[0])])
        with pytest.raises(UnsupportedError, match=f"^layer {BROKEN}: window rows: not finite"):
            shared.fork([(0, configs[1])])


def test_a_decode_rule_does_not_choose_by_attention_that_is_none():
    model = model_of.__wrapped__("llava")
    with attach(model, KVConfig("h2o", 0.3, decode="evict")), torch.no_grad():
        output = model(**inputs(model, "image"))
        layer = model.get_decoder().layers[BROKEN].self_attn
        layer.q_proj.weight[0, 0] = torch.nan
        cache = output["cache"] if "cache" in output else output["past_key_values"]
        with pytest.raises(UnsupportedError, match=f"^layer {BROKEN}: attention of a generated token: not finite"):
            model(input_ids=torch.tensor([[7]]), past_key_values=cache)

"""Methods whose budgets follow from the prompt's length evict a layer before the next one runs."""

import pytest
import torch

from kv_caches import KVConfig, attach, registry
from kv_caches.cache import EvictingLayer
from tests.models import build
from tests.prompts import inputs

from .support import at_any_share, every_variant
from .support import build as build_method

EARLY = sorted({name for name, variant in every_variant() if build_method(name, variant).evicts_in_layer})


@pytest.fixture
def whole_layers(monkeypatch):
    """Layers that hold the whole prompt, counted whenever one is filled."""
    counts, update, alive = [], EvictingLayer.update, []

    def counted(layer, keys, values, *args, **kwargs):
        result = update(layer, keys, values, *args, **kwargs)
        if keys.shape[2] > 1:
            alive.append(layer)
            sizes = [one.keys.shape[2] for one in alive if sum(one is other for other in caches[-1].layers)]
            counts.append(sizes.count(keys.shape[2]))
        return result

    caches = []
    monkeypatch.setattr(EvictingLayer, "update", counted)
    return counts, caches


def prefill(model, config, caches):
    with attach(model, config) as attachment:
        begin = attachment._begin_prompt

        def remember(cache, *args):
            caches.append(cache)
            begin(cache, *args)

        attachment._begin_prompt = remember
        output = model.generate(**inputs(model, "image", "short_image"), max_new_tokens=4, do_sample=False)
        return output, attachment.kept


def positions(kept):
    return [[[index.tolist() for index in sets] for sets in sample] for sample in kept]


def test_the_methods_are_those_with_budgets_known_ahead():
    assert {"full", "snapkv", "h2o", "streaming_llm", "pyramid_kv", "elastic_cache", "ada_kv", "look_m"} <= set(EARLY)
    assert not {"tgv_kv", "prefix_kv", "cake", "vl_cache"} & set(EARLY)


@pytest.mark.parametrize("name", ["snapkv", "look_m", "elastic_cache"])
def test_never_more_than_one_layer_holds_the_whole_prompt(whole_layers, name):
    counts, caches = whole_layers
    prefill(build("llava"), KVConfig(name, 0.2), caches)
    assert counts == [1] * len(counts)
    assert len(counts) == 4


def test_a_method_that_needs_all_layers_keeps_them(whole_layers):
    counts, caches = whole_layers
    prefill(build("llava"), KVConfig("tgv_kv", 0.2), caches)
    assert counts == [1, 2, 3, 4]


@pytest.mark.parametrize("name", [name for name in EARLY if name in dict(at_any_share()) and name != "ablation"])
def test_early_and_late_eviction_keep_the_same(name, monkeypatch):
    model, config = build("qwen3_vl"), KVConfig(name, 1.0 if name == "full" else 0.3)
    output, kept = prefill(model, config, [])
    monkeypatch.setattr(type(registry.build(name, config.variant)), "evicts_in_layer", False)
    late, kept_late = prefill(model, config, [])
    assert torch.equal(output, late)
    assert positions(kept) == positions(kept_late)


def test_the_full_cache_is_not_copied():
    model = build("llava")
    with attach(model, KVConfig()) as attachment:
        seen = []
        evict = attachment._evict_early

        def remember(index):
            before = attachment._cache.layers[index]
            evict(index)
            seen.append(attachment._cache.layers[index] is before)

        attachment._evict_early = remember
        model.generate(**inputs(model, "image", "short_image"), max_new_tokens=2, do_sample=False)
    assert seen[:4] == [True] * 4

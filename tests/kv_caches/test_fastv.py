"""FastV keeps what the worked cases and a naive reference say, at the share asked for or not at all."""

import re

import pytest
import torch

from kv_caches import ConfigError, KVConfig, UnsupportedError, attach, kernels, registry
from kv_caches.methods.fastv import LAST, AfterLayerK, LooksBefore
from kv_caches.pruned_prefill import attend_among
from kv_caches.shared import SharedPrefill
from kv_caches.statistics import PrefillStats
from tests.models import build
from tests.prompts import inputs
from tests.reference import fastv as reference

from .support import by_id, case_list, fixture_stats, prompt_of, random_stats, select
from .test_against_references import Draw

FASTV = registry.build("fastv", "paper")


def kept(prompt, retention, layers=6, variant="paper", **fields):
    stats = random_stats(prompt_of(prompt), FASTV.needs, layers=layers)
    stats.deepstack = fields.get("deepstack", 0)
    selection = registry.build("fastv", variant).select(stats, retention)
    return [positions.tolist() for (positions,) in selection.kept]


@pytest.mark.parametrize("case", case_list("fastv"), ids=by_id)
def test_the_worked_cases(case):
    stats = fixture_stats(case["input"], FASTV.needs)
    budget = stats.prompt.text.numel() + case["params"]["keep"]
    scorer = LooksBefore(AfterLayerK(case["params"]["attn_layer"] + 1))
    assert select(FASTV, stats, budget, scorer=scorer).kept[-1][0].tolist() == case["expected"]["kept"]


@pytest.mark.parametrize("variant", ["paper", "k2"])
def test_keeps_what_the_reference_keeps(variant):
    method, refused = registry.build("fastv", variant), 0
    k = 2 if variant == "k2" else 3
    for seed in range(60):
        draw = Draw(seed, layers=5)
        retention = (0.45, 0.65, 0.8, 0.9, 0.97)[seed % 5]
        try:
            theirs = reference.kept(draw.attention, draw.keys, draw.values, draw.vision, retention, k=k)
        except reference.TooSmall:
            refused += 1
            with pytest.raises(ConfigError, match="out of reach for fastv"):
                method.select(draw.stats(method.needs), retention)
            continue
        ours = method.select(draw.stats(method.needs), retention)
        assert [[positions.tolist() for positions in sets] for sets in ours.kept] == theirs, seed
    assert 10 < refused < 50


def test_several_images_are_ranked_together_and_equal_looks_keep_the_lower_position():
    stats = PrefillStats(prompt_of("TVVTVVT"), 4)
    row = torch.tensor([[0.0, 0.3, 0.1, 0.0, 0.3, 0.3, 0.0]] * 2)
    stats._layers = [{LAST: row if layer == 2 else row.flip(1)} for layer in range(4)]
    budgets = [7, 7, 7, 5]
    assert FASTV.budget.allocate(stats, 26 / 28) == budgets
    assert [positions.tolist() for (positions,) in FASTV.select(stats, 26 / 28).kept] == [
        *[list(range(7))] * 3,
        [0, 1, 3, 4, 6],
    ]


@pytest.mark.parametrize(("layers", "text", "vision", "least"), [(32, 64, 576, 0.1844), (36, 100, 1400, 0.1445)])
def test_the_share_is_met_or_refused_with_the_least_that_is_possible(layers, text, vision, least):
    length = text + vision
    stats = PrefillStats(prompt_of("T" * 35 + "V" * vision + "T" * (text - 35)), layers)
    for retention in (0.2, 0.5, 0.8, least):
        spent = sum(FASTV.budget.allocate(stats, retention))
        assert abs(spent - retention * layers * length) <= (layers - 3) / 2 + 1e-9
    for retention in (0.05, 0.1, least - 1e-4):
        with pytest.raises(ConfigError, match=r"of this prompt \(") as refused:
            FASTV.budget.allocate(stats, retention)
        message = str(refused.value)
        assert message.startswith(f"KV_RETENTION={retention:g} is out of reach for fastv")
        assert f"use KV_RETENTION={least:g} (PRUNE_RATIO={1 - least:.6g}) or prune less" in message
        assert "\n" not in message


@pytest.mark.parametrize("prompt", ["TTVVT", "VVV", "TTTTT", "VTVTVTTV", "T" * 7 + "V" * 31 + "T" * 3])
def test_the_least_share_it_names_is_possible_and_leaves_text_and_the_last_token(prompt):
    with pytest.raises(ConfigError) as refused:
        kept(prompt, 0.01)
    least = float(re.search(r"use KV_RETENTION=([\d.]+)", str(refused.value))[1])
    survivors = [i for i, token in enumerate(prompt) if token == "T" or i == len(prompt) - 1]
    assert kept(prompt, least)[3:] == [survivors] * 3
    assert kept(prompt, 1.0) == [list(range(len(prompt)))] * 6


def test_a_prompt_without_vision_has_nothing_to_prune():
    with pytest.raises(ConfigError, match=r"at least 1 of this prompt \(9 tokens, 0 of them vision\)"):
        kept("T" * 9, 0.99)


def test_the_first_pruned_layer_lies_behind_the_last_vision_features():
    prompt = "TT" + "V" * 20 + "TT"

    def whole(layers):
        return sum(len(layer) == len(prompt) for layer in layers)

    assert [whole(kept(prompt, 0.8, variant=variant)) for variant in ("paper", "k2")] == [3, 2]
    assert [whole(kept(prompt, 0.8, 7, "k2", deepstack=count)) for count in (1, 3, 4)] == [2, 3, 4]
    with pytest.raises(UnsupportedError, match="behind layer 3, but the model has 3 layers"):
        kept(prompt, 0.9, layers=3)


def test_the_number_of_deepstack_layers_is_the_model_s(monkeypatch):
    counts = {family: kernels.deepstack_layers(build(family)) for family in ("llava", "qwen2_5_vl", "qwen3_vl")}
    assert counts == {"llava": 0, "qwen2_5_vl": 0, "qwen3_vl": 2}
    model, whole = build("qwen3_vl"), []
    for count in (2, 3):
        monkeypatch.setattr(kernels, "deepstack_layers", lambda _, count=count: count)
        with attach(model, KVConfig("fastv", 0.95, "k2")) as attachment, torch.no_grad():
            model(**inputs(model, "image"))
            (record,) = attachment.take_records()
            whole.append(record["kept_vision"].count(record["vision_tokens"]))
    assert whole == [2, 3]


def test_one_prefill_cannot_be_shared():
    with pytest.raises(UnsupportedError, match="fastv changes the prefill and cannot share one"):
        SharedPrefill(build("llava"), [KVConfig(), KVConfig("fastv", 0.95)])


def test_pruned_layers_never_hold_the_whole_prompt_after_they_ran():
    model = build("llava")
    with attach(model, KVConfig("fastv", 0.82, "k2")) as attachment, torch.no_grad():
        output = model(**inputs(model, "image"))
        (record,) = attachment.take_records()
    cache = output["cache"] if "cache" in output else output["past_key_values"]
    n = record["prompt_tokens"]
    assert [layer.keys.shape[2] for layer in cache.layers] == [n, n, n - 12, n - 12]
    assert record["kept_text"] == [record["text_tokens"]] * 4
    assert record["kept_vision"] == [16, 16, 4, 4]
    assert record["kv_bytes_allocated"] == record["kv_bytes_kept"] == record["kv_bytes_full"] * (4 * n - 24) // (4 * n)


@pytest.mark.parametrize(
    ("mask", "window", "message"),
    [(object(), None, "a mask of type object"), (None, 4, "sliding window"), (torch.ones(1, 9), 4, "sliding window")],
)
def test_masks_that_cannot_be_narrowed_are_refused(mask, window, message):
    states = torch.zeros(1, 2, 9, 8)
    with pytest.raises(UnsupportedError, match=message):
        attend_among(None, [torch.arange(5)], states, states, states, mask, sliding_window=window)

"""LOOK-M, VL-Cache, CAKE and MixKV keep exactly the positions of the worked cases; LOOK-M's merging by hand."""

from dataclasses import replace

import pytest
import torch

from kv_caches import registry
from kv_caches.budgets import tokens_kept
from kv_caches.cache import EvictingLayer
from kv_caches.methods import cake, cake_official, look_m, mix_kv, vl_cache
from kv_caches.prompt import Prompt
from kv_caches.scorers import WindowVotes

from .support import by_id, case_list, fixture_stats, kept_lists, prompt_of, random_stats, select


@pytest.mark.parametrize("case", case_list("lookm"), ids=by_id)
def test_look_m(case):
    params, method = case["params"], registry.build("look_m", "paper")
    selection = select(method, fixture_stats(case["input"], method.needs), params["heavy"] + params["recent"])
    assert kept_lists(selection) == case["expected"]["kept"]


def test_look_m_recent_tokens_are_a_tenth_then_text_comes_first():
    prompt = prompt_of("TTVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVTTVV")
    scores = torch.arange(40.0)[None]
    assert look_m.RecentThenText().keep(scores, 20, prompt)[0].tolist() == [0, 1, *range(22, 40)]
    assert look_m.RecentThenText().keep(scores, 1, prompt)[0].tolist() == [39]
    assert look_m.RecentThenText().keep(scores, 4, prompt)[0].tolist() == [1, 36, 37, 39]


def test_look_m_pivot_merging():
    generator = torch.Generator().manual_seed(3)
    keys, values = torch.randn(2, 1, 2, 9, 4, generator=generator)
    kept = [torch.tensor([0, 4, 7]), torch.tensor([1, 2, 8])]
    merge, prompt = look_m.MergeIntoMostSimilar(), Prompt(torch.zeros(9).bool())
    merges = [merge.merge(row, keys[0, i : i + 1], prompt) for i, row in enumerate(kept)]
    layer = EvictingLayer(torch.zeros(1, dtype=torch.long))
    layer.update(keys, values)
    small = layer.take([0], [kept], [merges])
    for head, row in enumerate(kept):
        gone = [p for p in range(9) if p not in row]
        near = {
            p: max(row.tolist(), key=lambda k: torch.cosine_similarity(*keys[0, head, [p, k]], dim=0)) for p in gone
        }
        for slot, position in enumerate(row.tolist()):
            for before, after in ((keys, small.keys), (values, small.values)):
                own = before[0, head, position]
                sent = [(before[0, head, p] + own) / 2 for p in gone if near[p] == position]
                torch.testing.assert_close(after[0, head, slot], torch.stack([own, *sent]).mean(0))
    assert merge.merge(torch.arange(9), keys[0], prompt).leaving.numel() == 0


@pytest.mark.parametrize("case", case_list("vlcache"), ids=by_id)
def test_vl_cache_as_released(case):
    params, expected = case["params"], case["expected"]
    method = registry.build("vl_cache", "official")
    stats = fixture_stats(case["input"], method.needs)
    found = [stats.get(vl_cache.POST_VISION, layer) for layer in range(stats.n_layers)]
    assert [1 - float(layer.density) for layer in found] == pytest.approx(expected["sparsity"], abs=1e-5)
    assert method.budget.ratios(stats, params["r"]) == pytest.approx(expected["layer_ratio"], abs=1e-5)
    assert vl_cache.window_of(tokens_kept(params["r"], stats.prompt.length)) == expected["window"]
    assert vl_cache.POST_VISION.rows(stats.prompt).numel() == params["post_vision"]
    assert kept_lists(method.select(stats, params["r"])) == expected["kept"]


@pytest.mark.parametrize(("tokens", "rows"), [("TTVVTT", [4, 5]), ("TTVV", [3]), ("TTT", [0, 1, 2]), ("VTVTT", [3, 4])])
def test_rows_behind_the_image(tokens, rows):
    assert vl_cache.POST_VISION.rows(prompt_of(tokens)).tolist() == rows


@pytest.mark.parametrize("case", case_list("cake"), ids=by_id)
def test_cake_as_released(case):
    params, expected = case["params"], case["expected"]
    votes = cake.DynamicVotes(cake.WindowDynamics(params["window"], params["gamma"]), params["kernel"])
    budget = cake_official.OfficialPreference(votes, params["tau1"], params["tau2"])
    method = replace(
        registry.build("cake", "official"), budget=budget, scorer=votes, needs=frozenset({votes.statistic})
    )
    stats = fixture_stats(case["input"], method.needs)
    found = budget.preferences(stats, params["B"])
    assert found == pytest.approx(expected["preference"], abs=1e-5)
    n, window = stats.prompt.length, params["window"]
    past = budget.past(found, (params["B"] - window) * stats.n_layers, n - window)
    assert past == expected["past_budgets"]
    assert kept_lists(method.select(stats, params["B"] / n)) == expected["kept"]


@pytest.mark.parametrize("case", case_list("cake_budget_repair"), ids=by_id)
def test_cake_repairs_rounded_budgets_as_released(case):
    params = case["params"]
    assert cake_official.repaired(params["raw"], params["total"], params["cap"]) == case["expected"]["budgets"]


def test_cake_as_released_evicts_nothing_from_short_prompts():
    official, paper = registry.build("cake", "official"), registry.build("cake", "paper")
    stats = random_stats(prompt_of("TTVVVVTTTT"), paper.needs)
    assert kept_lists(official.select(stats, 0.7)) == [list(range(10))] * 3
    assert sum(sets[0].numel() for sets in paper.select(stats, 0.7).kept) == 21


@pytest.mark.parametrize("case", case_list("mixkv", "mixkv_online"), ids=by_id)
def test_mix_kv(case):
    params, expected, method = case["params"], case["expected"], registry.build("mix_kv", "paper")
    stats = fixture_stats(case["input"], method.needs)
    online = case["method"] == "mixkv_online"
    votes = WindowVotes(params["window"], params["kernel"], params["pooling"], capped=False)
    scorer = mix_kv.Mixed(votes, None if online else tuple(params["head_mix"]))
    for layer, mix in enumerate(expected.get("head_mix", [])):
        assert stats.get(mix_kv.DIVERSITY, layer).cosine.tolist() == pytest.approx(mix, abs=1e-5)
    assert kept_lists(select(method, stats, params["B"], scorer=scorer)) == expected["kept"]

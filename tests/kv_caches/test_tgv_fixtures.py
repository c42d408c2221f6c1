"""TGV-KV keeps exactly the positions of the worked cases: paper formulas, released code, its decode eviction."""

import pytest
import torch

from kv_caches import registry
from kv_caches.budgets import tokens_kept, water_fill
from kv_caches.methods.tgv_kv_official import build_official
from kv_caches.prompt import Prompt
from kv_caches.statistics import TextGrounding

from .support import by_id, case_list, fixture_stats, kept_lists


@pytest.mark.parametrize("case", case_list("tgv_paper"), ids=by_id)
def test_paper_formulas(case):
    method, expected = registry.build("tgv_kv", "paper"), case["expected"]
    stats = fixture_stats(case["input"], method.needs)
    assert kept_lists(method.select(stats, case["params"]["r"])) == expected["kept"]
    assert method.budget.allocate(stats, case["params"]["r"]) == expected["budgets"]
    for layer, scores in enumerate(expected.get("scores", [])):
        assert method.scorer.score(stats, layer, 0)[0].tolist() == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize("case", case_list("tgv_official"), ids=by_id)
def test_released_code(case):
    method, expected = build_official("official", case["params"]["start"]), case["expected"]
    stats, retention = fixture_stats(case["input"], method.needs), 1 - case["params"]["prune_ratio"]
    selection = method.select(stats, retention)
    assert kept_lists(selection) == expected["kept"]
    assert not selection.official_broke
    assert method.budget.shares(stats) == pytest.approx(expected["tv_share"], abs=1e-5)
    assert method.budget.rho(stats, retention) == pytest.approx(expected["rho"], abs=1e-5)
    states = [method.decode_rule.begin(stats, i, kept, retention) for i, kept in enumerate(selection.kept)]
    assert [state.suffix for state in states] == expected["protected_suffix"]
    for layer, scores in enumerate(expected.get("scores", [])):
        assert method.scorer.score(stats, layer, 0)[0].tolist() == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize("case", case_list("tgv_official_decode"), ids=by_id)
def test_released_decode_eviction_step_by_step(case):
    method, retention = build_official("official"), 1 - case["params"]["prune_ratio"]
    stats = fixture_stats(case["input"], method.needs)
    selection = method.select(stats, retention)
    assert kept_lists(selection) == case["expected"]["prefill_kept"]
    for layer, sets in enumerate(selection.kept):
        positions, state = sets[0], method.decode_rule.begin(stats, layer, sets, retention)
        for number, step in enumerate(case["expected"]["steps"]):
            positions = torch.cat([positions, torch.tensor([stats.prompt.length + number])])
            stays = method.decode_rule.evict(state, [torch.tensor(step["attention"][layer])[None]])
            positions = positions if stays is None else positions[stays[0]]
            assert positions.tolist() == step["kept_after"][layer]


@pytest.mark.parametrize("case", case_list("segments"), ids=by_id)
def test_token_roles(case):
    tokens, expected = case["params"]["tokens"], case["expected"]
    prompt = Prompt(torch.tensor([token == "V" for token in tokens]))
    start, stop = prompt.official_block
    text = prompt.text.tolist()
    assert prompt.vision.tolist() == expected["vision"]
    assert [start, stop] == expected["official_block"]
    assert [i for i in text if start <= i < stop] == expected["official_treats_text_as_vision"]
    late = TextGrounding(after_block=True).rows(prompt).tolist()
    assert [i for i in late if i not in text] == expected["official_treats_vision_as_text"]
    assert [i for i in text if i > expected["vision"][0]] == expected["text_rows_seeing_vision"]


@pytest.mark.parametrize("case", case_list("budget_rounding"), ids=by_id)
def test_budget_rounding(case):
    assert tokens_kept(case["params"]["r"], case["params"]["N"]) == case["expected"]["B"]


@pytest.mark.parametrize("case", case_list("tgv_budget"), ids=by_id)
def test_surplus_of_a_full_layer_goes_to_the_others(case):
    params = case["params"]
    total = tokens_kept(params["r"], params["N"] * params["L"])
    assert water_fill(params["tv_share"], total, params["N"]) == case["expected"]["project_kept"]

"""Every baseline keeps exactly the positions of the worked cases; scores, budgets and merged keys to 1e-5."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from kv_caches import registry
from kv_caches.attention import LayerView
from kv_caches.cache import EvictingLayer
from kv_caches.decode import FixedSlot
from kv_caches.methods import ada_kv, elastic_cache, elastic_cache_official, h2o, mm_shiftkv, prefix_kv, pyramid_kv
from kv_caches.methods.expected_attention import ExpectedAttention
from kv_caches.methods.prefix_kv_offline import Profiled
from kv_caches.prompt import Prompt
from kv_caches.retention import Protected
from kv_caches.scorers import WindowVotes
from kv_caches.statistics import PrefillStats

from .support import CASES, by_id, case_list, fixture_stats, kept_lists, select


def window_votes(params):
    return WindowVotes(params["window"], params["kernel"], params["pooling"], capped=False)


def per_query_head(name, needs):
    """The input as if every query head had keys of its own."""
    data = CASES["inputs"][name]
    prompt = Prompt(torch.tensor(data["vision_mask"]).bool())
    stats = PrefillStats(prompt, data["layers"])
    for layer in range(data["layers"]):
        q, k, v = (torch.tensor(data[key][layer]) for key in "QKV")
        k, v = (x.repeat_interleave(len(q) // len(k), 0) for x in (k, v))
        stats.collect(layer, LayerView(q, k, v, prompt, q.shape[-1] ** -0.5), needs)
    return stats


@pytest.mark.parametrize("case", case_list("streaming"), ids=by_id)
def test_streaming_llm(case):
    params, method = case["params"], registry.build("streaming_llm", "paper")
    stats = fixture_stats(case["input"], method.needs)
    keep = Protected(sinks=params["sink"], last=1)
    assert kept_lists(select(method, stats, params["B"], retention=keep)) == case["expected"]["kept"]


@pytest.mark.parametrize("case", case_list("h2o"), ids=by_id)
def test_h2o(case):
    params, method = case["params"], registry.build("h2o", "paper")
    heads = per_query_head if case["id"] == "S2-h2o-queryheads" else fixture_stats
    stats = heads(case["input"], method.needs)
    assert kept_lists(select(method, stats, params["heavy"] + params["recent"])) == case["expected"]["kept"]
    for layer, sums in enumerate(case["expected"].get("colsum", [])):
        assert stats.get(h2o.ACCUMULATED.statistic, layer).tolist() == [pytest.approx(row, abs=1e-5) for row in sums]


@pytest.mark.parametrize("case", case_list("h2o_decode"), ids=by_id)
def test_h2o_drops_one_entry_per_step(case):
    method, params = registry.build("h2o", "paper"), case["params"]
    stats = per_query_head(case["input"], method.needs)
    sets = select(method, stats, params["heavy"] + params["recent"]).kept[params["layer"]]
    state = method.decode_rule.begin(stats, params["layer"], sets, 0.5)
    for number, step in enumerate(case["expected"]["steps"]):
        sets = [torch.cat([kept, torch.tensor([stats.prompt.length + number])]) for kept in sets]
        stay = method.decode_rule.evict(state, [torch.tensor(row)[None] for row in step["attention"]])
        sets = [kept[index] for kept, index in zip(sets, stay)]
        assert [kept.tolist() for kept in sets] == step["kept_after"]


@pytest.mark.parametrize("case", case_list("snapkv"), ids=by_id)
def test_snapkv(case):
    params, method = case["params"], registry.build("snapkv", "paper")
    stats, scorer = fixture_stats(case["input"], method.needs), window_votes(params)
    assert kept_lists(select(method, stats, params["B"], scorer=scorer)) == case["expected"]["kept"]
    for layer, scores in enumerate(case["expected"].get("scores", [])):
        ours = scorer.score(stats, layer, params["B"])[:, : -params["window"]]
        assert ours.tolist() == [pytest.approx(row, abs=1e-5) for row in scores]


@pytest.mark.parametrize("case", case_list("pyramidkv"), ids=by_id)
def test_pyramid_kv_as_released(case):
    params, method = case["params"], registry.build("pyramid_kv", "official")
    stats, votes = fixture_stats(case["input"], method.needs), window_votes(params)
    budget = pyramid_kv.OfficialPyramid(votes, params["beta"])
    past = budget.past(params["cap"], params["window"], stats.prompt.length, stats.n_layers)
    assert past == case["expected"]["past_budgets"]
    retention = params["cap"] / stats.prompt.length
    assert kept_lists(replace(method, budget=budget, scorer=votes).select(stats, retention)) == case["expected"]["kept"]


@pytest.mark.parametrize("case", case_list("pyramid_budget"), ids=by_id)
def test_pyramid_budgets_as_released_and_conserved(case):
    params, expected = case["params"], case["expected"]
    votes = WindowVotes(params["window"])
    past = pyramid_kv.OfficialPyramid(votes, params["beta"]).past(
        params["cap"], params["window"], params["N"], params["L"]
    )
    assert past == expected["past_budgets"]
    assert sum(past) + params["L"] * params["window"] == expected["total_with_window"]
    prompt = Prompt(torch.zeros(params["N"]).bool())
    conserved = pyramid_kv.Pyramid(votes, params["beta"]).allocate(
        PrefillStats(prompt, params["L"]), params["cap"] / params["N"]
    )
    assert sum(conserved) == expected["target"]
    assert conserved == sorted(conserved, reverse=True)


@pytest.mark.parametrize("retention", [ada_kv.HeadAdaptive, ada_kv.OfficialHeadAdaptive])
@pytest.mark.parametrize("case", case_list("adakv"), ids=by_id)
def test_ada_kv(case, retention):
    params, method = case["params"], registry.build("ada_kv", "paper")
    stats, keep = fixture_stats(case["input"], method.needs), retention(params["floor_alpha"])
    selection = select(method, stats, params["B"], scorer=window_votes(params), retention=keep)
    assert kept_lists(selection) == case["expected"]["kept"]
    past = [[kept.numel() - params["window"] for kept in sets] for sets in selection.kept]
    assert past == case["expected"]["head_past_budgets"]


@pytest.mark.parametrize("case", case_list("elastic_official"), ids=by_id)
def test_elastic_cache_as_released(case):
    start = case["params"]["start"]
    method, expected = elastic_cache_official.build_official(start), case["expected"]
    stats = fixture_stats(case["input"], method.needs)
    selection = method.select(stats, 1 - case["params"]["forget"] / stats.prompt.length)
    assert kept_lists(selection) == expected["kept"]
    assert not selection.official_broke
    check_merges(method.merge, selection, case)


@pytest.mark.parametrize("case", case_list("elastic_topk"), ids=by_id)
def test_elastic_cache_corrected(case):
    start = case["params"]["start"]
    method, expected = registry.build("elastic_cache", "paper"), case["expected"]
    stats = fixture_stats(case["input"], method.needs)
    parts = {"retention": Protected(sinks=start, last=1), "merge": elastic_cache.MergeIntoNearest(start)}
    selection = select(method, stats, stats.prompt.length - case["params"]["forget"], **parts)
    assert kept_lists(selection) == expected["kept"]
    check_merges(parts["merge"], selection, case)


def check_merges(merge, selection, case):
    prompt = Prompt(torch.tensor(CASES["inputs"][case["input"]]["vision_mask"]).bool())
    merges = [merge.merge(kept, torch.empty(0), prompt) for (kept,) in selection.kept]
    for merging, layer in zip(merges, case["expected"]["layers"]):
        assert merging.leaving.tolist() == layer["thrown"]
        assert merging.into.tolist() == layer["merge_into"]
    if "merged_key_head0_layer0" not in case["expected"]:
        return
    data = CASES["inputs"][case["input"]]
    whole = EvictingLayer(torch.zeros(1, dtype=torch.long))
    whole.update(torch.tensor(data["K"][0])[None], torch.tensor(data["V"][0])[None])
    cache = whole.take([0], [selection.kept[0]], [[merges[0]]])
    assert torch.equal(whole.keys[0], torch.tensor(data["K"][0]))
    expected = torch.tensor(case["expected"]["merged_key_head0_layer0"])
    torch.testing.assert_close(cache.keys[0, 0], expected, atol=1e-5, rtol=0)
    value = torch.tensor(data["V"][0])[0]
    leaving, into, _ = merges[0]
    for position, merged in zip(selection.kept[0][0].tolist(), cache.values[0, 0]):
        sent = leaving[into == position]
        torch.testing.assert_close(merged, (value[position] + value[sent].sum(0)) / (1 + len(sent)))


@pytest.mark.parametrize("length", [64, 101])
def test_elastic_cache_breaks_where_the_released_code_raises(length):
    method = registry.build("elastic_cache", "official")
    stats = PrefillStats(Prompt(torch.zeros(length).bool()), 2)
    selection = method.select(stats, 0.05)
    assert selection.official_broke
    assert kept_lists(selection) == [list(range(length))] * 2


@pytest.mark.parametrize("case", case_list("prefixkv_online"), ids=by_id)
def test_prefix_kv_online(case):
    params, expected = case["params"], case["expected"]
    method = registry.build("prefix_kv", "online")
    stats = fixture_stats(case["input"], method.needs)
    budget = prefix_kv.CommonCoverage(params["start"] + params["last"], params["tolerance"])
    importance = torch.cat([prefix_kv.IMPORTANCE.score(stats, i, 0) for i in range(stats.n_layers)])
    target = params["prune_ratio"] * stats.prompt.length * stats.n_layers
    assert budget.search(importance, target)[0] == expected["coverage"]
    assert budget.forget(importance, target) == expected["forget"]
    keep = Protected(sinks=params["start"], last=params["last"])
    selection = replace(method, budget=budget, retention=keep).select(stats, 1 - params["prune_ratio"])
    assert kept_lists(selection) == expected["kept"]


@pytest.mark.parametrize("case", case_list("prefixkv_search"), ids=by_id)
def test_prefix_kv_search(case):
    params, expected = case["params"], case["expected"]
    budget = prefix_kv.CommonCoverage(params["protected"], params["tolerance"])
    importance = torch.tensor(params["importance"])
    assert budget.search(importance, params["evict_total"]) == (expected["coverage"], expected["raw_forget"])
    assert budget.forget(importance, params["evict_total"]) == expected["rescaled_forget"]


@pytest.mark.parametrize("case", case_list("prefixkv_offline"), ids=by_id)
def test_prefix_kv_offline(case):
    params, method = case["params"], registry.build("prefix_kv", "offline")
    stats = fixture_stats(case["input"], method.needs)
    start, last = params["start"], params["last"]
    budget = Profiled(tuple(params["layer_evict_share"]), start + last)
    n = stats.prompt.length
    assert [n - b for b in budget.allocate(stats, 0.5)] == case["expected"]["forget"]
    selection = replace(method, budget=budget, retention=Protected(sinks=start, last=last)).select(stats, 0.5)
    assert kept_lists(selection) == case["expected"]["kept"]


@pytest.mark.parametrize("case", case_list("mmshiftkv"), ids=by_id)
def test_mm_shiftkv_with_given_proxies(case):
    params, expected, data = case["params"], case["expected"], CASES["inputs"][case["input"]]
    proxies = torch.tensor(data[params["proxies"]])
    statistic = mm_shiftkv.ProxyVotes(True, proxies.shape[2], params["groups"], coverage=params["coverage"])
    prompt = Prompt(torch.tensor(data["vision_mask"]).bool())
    for layer, kept in enumerate(expected["kept"]):
        q, k, v = (torch.tensor(data[key][layer]) for key in "QKV")
        view = LayerView(q, k, v, prompt, q.shape[-1] ** -0.5)
        ballot = statistic.vote(proxies[layer], view)
        assert ballot.votes.tolist() == expected["votes"][layer]
        assert ballot.named.tolist() == expected["voters_k"][layer]
        scores = F.pad(ballot.votes + ballot.anchor, (0, 1))
        ours = Protected(last=1).keep(scores, params["B"], prompt)
        assert [index.tolist() for index in ours] == kept


class Unturned(ExpectedAttention):
    """Rotations that change nothing."""

    def mean_rotation(self, layer):
        return torch.eye(layer.queries.shape[-1])


@pytest.mark.parametrize("case", case_list("expected_attention"), ids=by_id)
def test_expected_attention_without_rotation(case):
    data, statistic = CASES["inputs"][case["input"]], Unturned(sinks=case["params"]["sink"])
    prompt = Prompt(torch.tensor(data["vision_mask"]).bool())
    for layer, kept in enumerate(case["expected"]["kept"]):
        q, k, v = (torch.tensor(data[key][layer]) for key in "QKV")
        none = (torch.ones(q.shape[1:]), torch.zeros(q.shape[1:]))
        scores = statistic.collect(LayerView(q, k, v, prompt, q.shape[-1] ** -0.5, rotary=none))
        ours = Protected().keep(scores, case["params"]["B"], prompt)
        assert [index.tolist() for index in ours] == kept


@pytest.mark.parametrize("case", case_list("keydiff", "knorm", "tova", "observed_attention"), ids=by_id)
def test_cheap_controls(case):
    method, expected = registry.build(case["method"], "paper"), case["expected"]["kept"]
    ours = kept_lists(select(method, fixture_stats(case["input"], method.needs), case["params"]["B"]))
    assert ours == ([sets[0] for sets in expected] if case["method"] == "tova" else expected)


def test_fixed_slot_leaves_once_the_share_is_exceeded():
    rule, stats = FixedSlot(), PrefillStats(Prompt(torch.zeros(100).bool()), 1)
    state = rule.begin(stats, 0, [torch.arange(50)], 0.5)
    sizes, size = [], 50
    for _ in range(4):
        stay = rule.evict(state, [torch.zeros(2, size + 1)])
        size = size + 1 if stay is None else stay[0].numel()
        assert stay is None or 25 not in stay[0]
        sizes.append(size)
    assert sizes == [51, 51, 52, 52]
    assert rule.begin(stats, 0, [torch.arange(20)], 0.2).slot == 10


def test_tova_keeps_its_size_and_the_newest_token():
    method = registry.build("tova", "paper")
    stats = fixture_stats("S2", method.needs)
    state = method.decode_rule.begin(stats, 0, [torch.arange(4)], 0.25)
    stay = method.decode_rule.evict(state, [torch.tensor([[0.3, 0.1, 0.2, 0.4, 0.0], [0.3, 0.2, 0.1, 0.4, 0.0]])])
    assert stay[0].tolist() == [0, 1, 3, 4]

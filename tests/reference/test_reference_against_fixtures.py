"""The naive references give the numbers of the shared fixture cases, so that they can judge the engine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.reference import (
    REFERENCES,
    ada_kv,
    cake,
    elastic_cache,
    h2o,
    mix_kv,
    mm_shiftkv,
    prefix_kv,
    pyramid_kv,
    segments,
    tgv_kv,
    tgv_official,
    vl_cache,
)
from tests.reference.budgets import entries_per_layer, water_fill
from tests.reference.scores import attention_of, window_votes

DATA = json.loads((Path(__file__).parent.parent / "fixtures" / "method_cases.json").read_text())
CASES = {case["id"]: case for case in DATA["cases"]}


class Prompt:
    """One of the two shared inputs as arrays."""

    def __init__(self, name: str) -> None:
        raw = DATA["inputs"][name]
        self.vision = [bool(flag) for flag in raw["vision_mask"]]
        self.length, self.kv_heads = raw["N"], raw["kv_heads"]
        self.queries, self.keys, self.values, self.proxies = (
            np.array(raw[key]) if key in raw else None for key in ("Q", "K", "V", "proxy_q")
        )
        given = raw.get("attention")
        self.attention = np.array(given) if given else attention_of(self.queries, self.keys)
        self.means = self.attention.mean(axis=1)

    def kept(self, method: str, retention: float, **params) -> list:
        """What the reference keeps."""
        return REFERENCES[method](self.attention, self.keys, self.values, self.vision, retention, **params)


PROMPTS = {name: Prompt(name) for name in DATA["inputs"]}


def ids_of(*methods: str) -> list[str]:
    """Fixture cases of these methods."""
    return [case["id"] for case in DATA["cases"] if case["method"] in methods]


def load(case_id: str) -> tuple[Prompt | None, dict, dict]:
    """Input, parameters and expected values of a case."""
    case = CASES[case_id]
    return PROMPTS.get(case.get("input")), case["params"], case["expected"]


def assert_kept(kept: list, expected: list) -> None:
    """Compare positions, whether or not the case lists them per head."""
    per_head = isinstance(expected[0][0], list)
    if per_head and len(kept[0]) == 1:
        kept = [sets * len(heads) for sets, heads in zip(kept, expected, strict=True)]
    assert (kept if per_head else [sets[0] for sets in kept]) == expected


def near(expected: list) -> object:
    """Within the tolerance of the fixture file."""
    return pytest.approx(np.array(expected), abs=1e-5)


@pytest.mark.parametrize("case_id", ids_of("tgv_paper"))
def test_tgv_paper(case_id: str) -> None:
    prompt, params, expected = load(case_id)
    mass = np.array(tgv_kv.vision_mass(prompt.means, prompt.vision))
    assert mass / mass.sum() == near(expected["tv_share"])
    assert tgv_kv.budgets(prompt.means, prompt.vision, params["r"]) == expected["budgets"]
    if "scores" in expected:
        scores = [tgv_kv.layer_scores(mean, prompt.vision) for mean in prompt.means]
        assert np.array(scores) == near(expected["scores"])
    assert_kept(prompt.kept("tgv_kv", params["r"]), expected["kept"])


@pytest.mark.parametrize("case_id", ids_of("tgv_official"))
def test_tgv_official(case_id: str) -> None:
    prompt, params, expected = load(case_id)
    retention, ends = 1 - params["prune_ratio"], {"start": params["start"], "last": params["last"]}
    assert np.array(tgv_official.shares(prompt.means, prompt.vision)) == near(expected["tv_share"])
    rho = tgv_official.forget_shares(prompt.means, prompt.vision, retention)
    assert np.array(rho) == near(expected["rho"])
    assert tgv_official.forget_counts(prompt.means, prompt.vision, retention) == expected["forget"]
    kept = prompt.kept("tgv_kv", retention, variant="official", **ends)
    assert_kept(kept, expected["kept"])
    assert [tgv_official.suffix(sets[0], prompt.vision) for sets in kept] == expected["protected_suffix"]
    if "scores" in expected:
        scores = [tgv_official.scores(mean, prompt.vision) for mean in prompt.means]
        assert np.array(scores) == near(expected["scores"])


@pytest.mark.parametrize("case_id", ids_of("tgv_official_decode"))
def test_tgv_official_decode(case_id: str) -> None:
    prompt, params, expected = load(case_id)
    positions = [
        sets[0] for sets in prompt.kept("tgv_kv", 1 - params["prune_ratio"], variant="official", start=params["start"])
    ]
    assert positions == expected["prefill_kept"]
    rho = tgv_official.forget_shares(prompt.means, prompt.vision, 1 - params["prune_ratio"])
    suffix = [tgv_official.suffix(row, prompt.vision) for row in positions]
    for step in expected["steps"]:
        seen = prompt.length + step["step"]
        for layer, row in enumerate(step["attention"]):
            grown = [*positions[layer], seen - 1]
            positions[layer] = tgv_official.decode_step(grown, row, rho[layer], suffix[layer], seen)
        assert positions == step["kept_after"], step["step"]


def test_streaming_llm() -> None:
    prompt, params, expected = load("S1-streaming")
    assert_kept(prompt.kept("streaming_llm", params["B"] / 8, sinks=params["sink"]), expected["kept"])


@pytest.mark.parametrize("case_id", ids_of("h2o"))
def test_h2o(case_id: str) -> None:
    prompt, params, expected = load(case_id)
    kv_heads = prompt.attention.shape[1] // params["gqa_groups"]
    if "colsum" in expected:
        assert h2o.received(prompt.attention, kv_heads) == near(expected["colsum"])
    retention = (params["heavy"] + params["recent"]) / prompt.length
    assert_kept(prompt.kept("h2o", retention, kv_heads=kv_heads), expected["kept"])


def test_h2o_decode() -> None:
    prompt, params, expected = load("S2-h2o-decode")
    sums = h2o.received(prompt.attention, prompt.attention.shape[1])[params["layer"]]
    halves = params["heavy"], params["recent"]
    positions = [h2o.heavy_and_recent(row, *halves) for row in sums]
    running = [row[kept] for row, kept in zip(sums, positions, strict=True)]
    for step in expected["steps"]:
        for head, row in enumerate(step["attention"]):
            grown = [*positions[head], prompt.length + step["step"] - 1]
            positions[head], running[head] = h2o.decode_step(grown, running[head], np.array(row), *halves)
        assert positions == step["kept_after"], step["step"]


@pytest.mark.parametrize("case_id", ids_of("snapkv"))
def test_snapkv(case_id: str) -> None:
    prompt, params, expected = load(case_id)
    shape = {key: params[key] for key in ("window", "kernel", "pooling")} | {"kv_heads": prompt.kv_heads}
    if "scores" in expected:
        scores = [window_votes(layer, prompt.kv_heads, *list(shape.values())[:3]) for layer in prompt.attention]
        assert np.array(scores) / params["window"] == near(expected["scores"])
    assert_kept(prompt.kept("snapkv", params["B"] / prompt.length, **shape), expected["kept"])


@pytest.mark.parametrize("case_id", ids_of("pyramidkv"))
def test_pyramid_kv(case_id: str) -> None:
    prompt, params, expected = load(case_id)
    shape = {key: params[key] for key in ("window", "kernel", "pooling", "beta")} | {"kv_heads": prompt.kv_heads}
    past = pyramid_kv.official_past(prompt.length, 3, params["cap"], params["window"], params["beta"])
    assert past == expected["past_budgets"]
    assert_kept(
        prompt.kept("pyramid_kv", params["cap"] / prompt.length, variant="official", **shape),
        expected["kept"],
    )


def test_ada_kv() -> None:
    prompt, params, expected = load("S2-adakv")
    shape = {key: params[key] for key in ("window", "kernel", "pooling")}
    for layer, budgets in zip(prompt.attention, expected["head_past_budgets"], strict=True):
        votes = window_votes(layer, prompt.kv_heads, *shape.values()) / params["window"]
        base = params["B"] - params["window"]
        assert ada_kv.head_budgets(votes, base, params["floor_alpha"]) == budgets
        assert ada_kv.official_head_budgets(votes, base, params["floor_alpha"]) == budgets
    kept = prompt.kept("ada_kv", params["B"] / prompt.length, floor_share=params["floor_alpha"], **shape)
    assert_kept(kept, expected["kept"])


@pytest.mark.parametrize("case_id", ids_of("elastic_official", "elastic_topk"))
def test_elastic_cache(case_id: str) -> None:
    prompt, params, expected = load(case_id)
    options = {"start": params["start"], "last": params["last"]}
    options["variant"] = "official" if "official" in case_id else "paper"
    retention = 1 - params["forget"] / prompt.length
    plans = elastic_cache.plans(prompt.attention, retention, **options)
    assert [vars(plan) for plan in plans] == expected["layers"]
    assert_kept(prompt.kept("elastic_cache", retention, **options), expected["kept"])
    if "merged_key_head0_layer0" in expected:
        keys, _ = elastic_cache.merged(
            prompt.attention, prompt.keys, prompt.values, prompt.vision, retention, **options
        )
        assert keys[0, 0, plans[0].kept] == near(expected["merged_key_head0_layer0"])


@pytest.mark.parametrize("length", [64, 101])
def test_elastic_official_breaks_where_the_released_code_does(length: int) -> None:
    attention = np.tril(np.ones((1, 1, length, length))) / np.arange(1, length + 1)[:, None]
    with pytest.raises(elastic_cache.OfficialBroke):
        elastic_cache.plans(attention, 0.05, variant="official")


@pytest.mark.parametrize("case_id", ids_of("prefixkv_online", "prefixkv_offline"))
def test_prefix_kv(case_id: str) -> None:
    prompt, params, expected = load(case_id)
    ends = {"start": params["start"], "last": params["last"]}
    if "layer_evict_share" in params:
        kept = prompt.kept("prefix_kv", 0.5, variant="offline", layer_evict_share=params["layer_evict_share"], **ends)
    else:
        importance = prompt.means.sum(axis=1)
        evict = params["prune_ratio"] * importance.size
        level, counts = prefix_kv.search(importance, evict, sum(ends.values()), params["tolerance"])
        assert level == pytest.approx(expected["coverage"])
        assert prefix_kv.rescaled(counts, evict) == expected["forget"]
        kept = prompt.kept("prefix_kv", 1 - params["prune_ratio"], **ends)
    assert_kept(kept, expected["kept"])


@pytest.mark.parametrize("case_id", ids_of("prefixkv_search"))
def test_prefix_kv_search(case_id: str) -> None:
    _, params, expected = load(case_id)
    importance = np.array(params["importance"])
    level, counts = prefix_kv.search(importance, params["evict_total"], params["protected"], params["tolerance"])
    assert (level, counts) == (pytest.approx(expected["coverage"]), expected["raw_forget"])
    assert prefix_kv.rescaled(counts, params["evict_total"]) == expected["rescaled_forget"]


def test_mm_shiftkv() -> None:
    prompt, params, expected = load("S2-shiftkv")
    for layer in range(3):
        looks = mm_shiftkv.proxy_attention(prompt.keys[layer], prompt.proxies[layer])
        for head in range(prompt.kv_heads):
            anchor = prompt.attention[layer, 2 * head : 2 * head + 2, -1, :-1].mean(axis=0)
            ballots = mm_shiftkv.votes(looks[head], anchor, params["groups"], params["coverage"])
            assert [int(ballot.sum()) for ballot in ballots] == expected["voters_k"][layer][head]
            assert list(sum(ballots)) == expected["votes"][layer][head]
    options = {"proxies": prompt.proxies, "groups": params["groups"], "coverage": params["coverage"]}
    assert_kept(prompt.kept("mm_shiftkv", params["B"] / prompt.length, **options), expected["kept"])


@pytest.mark.parametrize("case_id", ids_of("tova", "keydiff", "knorm", "observed_attention", "expected_attention"))
def test_cheap_controls(case_id: str) -> None:
    prompt, params, expected = load(case_id)
    method = CASES[case_id]["method"]
    options = {"queries": prompt.queries, "sinks": params["sink"]} if method == "expected_attention" else {}
    assert_kept(prompt.kept(method, params["B"] / prompt.length, **options), expected["kept"])


def test_look_m() -> None:
    prompt, params, expected = load("S2-lookm")
    assert_kept(prompt.kept("look_m", (params["heavy"] + params["recent"]) / prompt.length), expected["kept"])


def test_vl_cache() -> None:
    prompt, params, expected = load("S2-vlcache")
    rows = vl_cache.rows_behind(prompt.vision)
    assert len(rows) == params["post_vision"]
    found = [vl_cache.density(layer, rows, params["p"]) for layer in prompt.attention]
    assert 1 - np.array(found) == near(expected["sparsity"])
    assert_kept(prompt.kept("vl_cache", params["r"], variant="official"), expected["kept"])


def test_cake() -> None:
    prompt, params, expected = load("S2-cake")
    wishes = [cake.preference(layer, params["window"]) for layer in prompt.attention]
    assert np.array(wishes) == near(expected["preference"])
    assert cake.official_past(wishes, prompt.length, params["B"], params["window"]) == expected["past_budgets"]
    options = {key: params[key] for key in ("window", "gamma", "kernel")}
    kept = prompt.kept("cake", params["B"] / prompt.length, variant="official", **options)
    assert_kept(kept, expected["kept"])


@pytest.mark.parametrize("case_id", ids_of("cake_budget_repair"))
def test_cake_budget_repair(case_id: str) -> None:
    _, params, expected = load(case_id)
    assert cake.repaired(params["raw"], params["total"], params["cap"]) == expected["budgets"]


@pytest.mark.parametrize("case_id", ids_of("mixkv", "mixkv_online"))
def test_mix_kv(case_id: str) -> None:
    prompt, params, expected = load(case_id)
    options = {key: params[key] for key in ("window", "kernel", "pooling")}
    if "head_mix" in expected:
        found = [[mix_kv.mean_cosine(head) for head in layer] for layer in prompt.keys]
        assert np.array(found) == near(expected["head_mix"])
    else:
        options["head_mix"] = params["head_mix"]
    assert_kept(prompt.kept("mix_kv", params["B"] / prompt.length, **options), expected["kept"])


@pytest.mark.parametrize("case_id", ids_of("budget_rounding"))
def test_budget_rounding(case_id: str) -> None:
    _, params, expected = load(case_id)
    assert entries_per_layer(params["N"], params["r"]) == expected["B"]


def test_tgv_budgets_give_the_surplus_of_a_full_layer_to_the_others() -> None:
    _, params, expected = load("BUD-tgv-clip")
    total = int(params["r"] * params["N"] * params["L"])
    assert water_fill(params["tv_share"], total, params["N"]) == expected["project_kept"]
    rho = [1 - params["L"] * params["r"] * share for share in params["tv_share"]]
    official = [params["N"] - max(0, round(value * params["N"])) for value in rho]
    assert (official, sum(official)) == (expected["official_kept"], expected["official_total"])


@pytest.mark.parametrize("case_id", ids_of("pyramid_budget"))
def test_pyramid_budgets(case_id: str) -> None:
    _, params, expected = load(case_id)
    shape = params["N"], params["L"], params["cap"], params["window"], params["beta"]
    past = pyramid_kv.official_past(*shape)
    assert past == expected["past_budgets"]
    assert sum(past) + params["L"] * params["window"] == expected["total_with_window"]
    project = pyramid_kv.project_past(params["N"], params["L"], params["cap"] / params["N"], *shape[3:])
    assert sum(project) + params["L"] * params["window"] == expected["target"]


@pytest.mark.parametrize("case_id", ids_of("segments"))
def test_segments(case_id: str) -> None:
    _, params, expected = load(case_id)
    vision = [token == "V" for token in params["tokens"]]
    first, after = segments.official_block(vision)
    assert segments.vision_positions(vision) == expected["vision"]
    assert [first, after] == expected["official_block"]
    inside = [p for p in range(first, after) if not vision[p]]
    beyond = [p for p in range(after, len(vision)) if vision[p]]
    assert inside == expected["official_treats_text_as_vision"]
    assert beyond == expected["official_treats_vision_as_text"]
    assert segments.text_rows_seeing_vision(vision) == expected["text_rows_seeing_vision"]

"""The benchmarks measure what they say; their times are not tested."""

import json

import pytest
import torch

from analysis import speed
from analysis.errors import ResultsError
from benchmarks import cell, check, efficiency, official, phases, shapes
from benchmarks.bounds import Finding, Promise
from benchmarks.memory import Peak
from benchmarks.paired import Timed
from kv_caches import KVConfig

TGV = KVConfig("tgv_kv", 0.05)


@pytest.fixture(scope="module")
def model():
    return shapes.build("smoke", "cpu")


@pytest.fixture(scope="module")
def ids():
    return shapes.prompt(512, 2, "cpu")


def test_the_peak_is_the_most_that_was_alive():
    with Peak("cpu") as peak:
        one = torch.zeros(1000)
        two = one + 1
        del one
        two.view(10, 100)[1] * 2
    assert peak.bytes == 8000


def test_greedy_tokens_are_those_of_generate(model, ids):
    stock = model.generate(input_ids=ids, max_new_tokens=9, do_sample=False, eos_token_id=None, pad_token_id=0)
    for config in (None, KVConfig()):
        assert torch.equal(phases.run(model, ids, config, 8).tokens, stock[:, ids.shape[1] :])


def test_bytes_are_those_of_the_cache(model, ids):
    entry = 2 * 2 * 16 * 4  # keys and values, KV heads, size, float32
    full, evicted = (phases.run(model, ids, config, 3) for config in (KVConfig(), TGV))
    assert full.kv_prompt == 2 * 2 * 512 * entry
    assert evicted.kv_prompt == 2 * int(0.05 * 512 * 2) * entry
    assert evicted.kv_room > 0


def test_parts_are_timed_and_weighed(model, ids):
    parts = phases.run(model, ids, TGV, 3, parts=True).spent
    assert {"prefill scoring", "prefill eviction", "decode attention", "decode cache"} <= set(parts)
    assert all(parts[name] > 0 for name in ("prefill scoring", "prefill eviction", "decode attention", "decode cache"))
    weighed = phases.run(model, ids, TGV, 3, weigh=True)
    assert weighed.peak_prefill > weighed.peak_decode > 0


def test_the_official_style_keeps_the_budget_and_returns_every_map():
    model, ids = shapes.build("smoke", "cpu", "eager"), shapes.prompt(256, 1, "cpu")
    kept = official._keep(
        torch.rand(256, 256).tril(), *(torch.arange(256)[part] for part in (ids[0] != 32000, ids[0] == 32000)), 80
    )
    assert kept.numel() == 80
    assert set((ids[0] != 32000).nonzero().flatten().tolist()) <= set(kept.tolist())
    prefill, steps = official.run(model, ids, 0.05, 2)
    assert prefill > 0
    assert len(steps) == 2


def test_a_cell_runs_apart_and_a_broken_one_says_why():
    small = cell.Cell("smoke", "cpu", "tgv_kv", 0.05, 256, 1, 2)
    row = efficiency.derived(efficiency.run_apart(small), 1e9)
    assert row["tokens_per_s_512"] == pytest.approx(512 / (row["prefill_s"] + 512 * row["step_s"]))
    assert row["roofline_share"] == pytest.approx((row["weight_bytes"] + row["kv_prompt_bytes"]) / 1e9 / row["step_s"])
    broken = efficiency.run_apart(cell.Cell("smoke", "cpu", "h3o", 0.05, 256, 1, 2))
    assert "h3o" in broken["error"]


def test_the_table_shows_figures_and_reasons(tmp_path, capsys):
    row = {"shape": "cpu", "length": 2048, "batch": 1, "method": "stock", "retention": 1.0, "new": 8}
    rows = [
        row | {"prefill_s": 1.5, "step_s": 0.25},
        row | {"method": "h2o", "retention": 0.05, "error": "out of memory"},
    ]
    path = tmp_path / "figures.json"
    path.write_text(json.dumps({"schema": 1, "device": "card", "copy_bandwidth": 2e9, "rows": rows}))
    assert speed.main([str(path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "Table 4: time and memory, cpu shape, card"
    assert shown[2] == "N = 2048"
    assert [line.split()[:5] for line in shown[6:8]] == [
        ["1", "stock", "100", "%", "1.50"],
        ["h2o", "5", "%", "out", "of"],
    ]


@pytest.mark.parametrize("text", ["{", '{"schema": 2, "rows": []}', "[]"])
def test_a_file_of_something_else_is_refused(tmp_path, text):
    path = tmp_path / "figures.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=r"figures\.json"):
        speed.load(path)


def test_a_missed_or_undecided_promise_fails_the_check(monkeypatch, capsys):
    def fine():
        return [Finding(Promise("ratio", 1.0), (0.5,), counted=True)]

    def missed():
        return [Finding(Promise("other", 1.0), (1.1,), counted=True)]

    def unknown():
        return Timed([Promise("times", 1.0)], {"a": lambda: 1.0}, lambda a: [a])

    monkeypatch.setattr(check, "CHECKS", (fine, missed, unknown))
    assert check.main(["fine"]) == 0
    assert check.main([]) == 1
    assert "MISSED" in capsys.readouterr().out
    assert check.main(["fine", "unknown", "--seconds", "1e-9"]) == 3
    assert "undecided: times: " in capsys.readouterr().out


def test_an_unknown_method_is_refused_before_anything_is_measured(capsys):
    assert efficiency.main(["--device", "cpu", "--methods", "snapvk"]) == 2
    assert "snapkv" in capsys.readouterr().err


def test_copies_of_a_prompt_decode_as_the_prompt_does(model, ids):
    for config in (None, KVConfig(), TGV):
        one, four = (phases.run(model, ids[:1], config, 6, copies=copies) for copies in (1, 4))
        assert torch.equal(four.tokens, one.tokens.expand(4, -1))
        assert four.kv_prompt == 4 * one.kv_prompt
        assert four.kv_room == 4 * one.kv_room

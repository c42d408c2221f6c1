"""One prefill answers a whole sweep, with the answers each configuration gives alone."""

import json

import pytest
import torch

from kv_caches import registry
from kv_caches.cache import EvictingLayer
from lmms_eval_plugins.models.grid import GridPass
from lmms_eval_plugins.sweeps import load_sweep
from tiny_vlm import MODEL_DIR

from . import grid, own_pass, toy

SAME = ("status", "answer", "answer_tokens", "generated_tokens", "stop_reason", "prompt_hash", "fingerprint", "wrapper")
SAME_PROOF = ("kept_text", "kept_vision", "prompt_tokens", "retention_achieved", "official_broke", "cache_entries")
SMALL = "retention: [0.1]\nmethods: [full, tgv_kv, {method: snapkv, retention: 0.3}]\n"


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """A sweep's file; the configuration in force is one of it."""
    path = tmp_path / "sweep.yaml"
    path.write_text(grid.SWEEP)
    for name, value in grid.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return path


@pytest.fixture
def llava(checkpoint):
    return checkpoint("llava")


def by_configuration(folder):
    found = {}
    for record in toy.records(folder):
        proof = record["eviction"] or {}
        name = tuple(proof.get(key) for key in ("method", "decode", "retention_nominal"))
        found.setdefault(name, {})[record["doc_id"]] = record
    return found


def separately(checkpoint, path, folder, docs, monkeypatch, **gen_kwargs):
    """One run per configuration, without a sweep."""
    for config in load_sweep(str(path)):
        with monkeypatch.context() as patch:
            patch.setenv("KV_CACHE_TYPE", config.method)
            patch.setenv("PRUNE_RATIO", str(round(1 - config.retention, 6)))
            patch.setenv("KV_DECODE", config.decode)
            grid.ask(grid.wrapper(checkpoint, folder), docs, **gen_kwargs)
    return by_configuration(folder)


def together(checkpoint, path, folder, docs, monkeypatch, rows=None, batch=2, **gen_kwargs):
    """One run of the sweep, decoding at most `rows` at once."""
    with monkeypatch.context() as patch:
        patch.setenv("KV_SWEEP", str(path))
        if rows:
            patch.setenv("KV_DECODE_BATCH", str(rows))
        grid.ask(grid.wrapper(checkpoint, folder, batch), docs, **gen_kwargs)
    return by_configuration(folder)


def assert_equal(shared, alone):
    assert set(shared) == set(alone)
    for name, samples in alone.items():
        assert set(shared[name]) == set(samples)
        for doc_id, record in samples.items():
            assert {k: shared[name][doc_id][k] for k in SAME} == {k: record[k] for k in SAME}, name
            proofs = shared[name][doc_id]["eviction"], record["eviction"]
            assert [proofs[0][k] for k in SAME_PROOF] == [proofs[1][k] for k in SAME_PROOF]


def test_each_configuration_answers_as_it_does_alone(llava, sweep, environment, monkeypatch):
    docs = toy.documents()
    alone = separately(llava, sweep, environment / "alone", docs, monkeypatch)
    assert len(alone) == grid.CONFIGURATIONS
    assert len({samples[0]["answer"] for samples in alone.values()}) > 2
    batched = together(llava, sweep, environment / "batched", docs, monkeypatch, batch=3)
    assert_equal(batched, alone)
    assert_equal(together(llava, sweep, environment / "in_turn", docs, monkeypatch, rows=1, batch=1), alone)
    assert {record["timing"] for samples in batched.values() for record in samples.values()} == {"shared"}
    assert {record["timing"] for samples in alone.values() for record in samples.values()} == {"own"}


def test_so_does_the_embedded_model(sweep, environment, monkeypatch):
    sweep.write_text(SMALL)
    docs = grid.captions(2)
    alone = separately(MODEL_DIR, sweep, environment / "alone", docs, monkeypatch, tokens=6)
    assert_equal(together(MODEL_DIR, sweep, environment / "shared", docs, monkeypatch, tokens=6), alone)


@pytest.mark.parametrize("gen_kwargs", [{"tokens": 1}, {"until": list("abcdefghijklm")}, {"tokens": 3}])
def test_answers_that_end_early_end_alike(gen_kwargs, llava, sweep, environment, monkeypatch):
    sweep.write_text(SMALL)
    alone = separately(llava, sweep, environment / "alone", toy.documents(), monkeypatch, **gen_kwargs)
    shared = together(llava, sweep, environment / "shared", toy.documents(), monkeypatch, **gen_kwargs)
    assert_equal(shared, alone)


@pytest.fixture
def prefills(llava, monkeypatch):
    """How many prompts were read so far."""
    lengths, update = [], EvictingLayer.update

    def counted(layer, keys, values, *args, **kwargs):
        lengths.append((keys.shape[2], keys.shape[0]))
        return update(layer, keys, values, *args, **kwargs)

    monkeypatch.setattr(EvictingLayer, "update", counted)
    layers = json.loads((llava / "config.json").read_text())["text_config"]["num_hidden_layers"]
    return lambda: sum(rows for length, rows in lengths if length > 1) / layers


@pytest.mark.parametrize("batch", [1, 3])
def test_every_prompt_is_prefilled_once(batch, llava, sweep, environment, monkeypatch, prefills):
    answers = together(llava, sweep, environment, toy.documents(), monkeypatch, batch=batch)
    assert len(answers) == grid.CONFIGURATIONS
    assert prefills() == len(toy.documents())


def test_a_method_that_needs_its_own_pass_gets_one(llava, sweep, environment, monkeypatch, prefills):
    monkeypatch.setitem(registry._BUILT_IN, "own_pass", own_pass.__name__)
    sweep.write_text("retention: [0.5, 0.1]\nmethods: [full, tgv_kv, own_pass]\n")
    docs = toy.documents()
    shared = together(llava, sweep, environment / "shared", docs, monkeypatch)
    assert prefills() == 3 * len(docs)  # one for the full cache and TGV-KV, and one for each budget of the other
    timing = {name[0]: {record["timing"] for record in samples.values()} for name, samples in shared.items()}
    assert timing == {"full": {"shared"}, "tgv_kv": {"shared"}, "own_pass": {"own"}}
    assert_equal(shared, separately(llava, sweep, environment / "alone", docs, monkeypatch))


@pytest.mark.parametrize(
    ("gen_kwargs", "reason"),
    [({"temperature": 0.7, "do_sample": True}, "do_sample=True"), ({"num_beams": 2}, "num_beams=2")],
)
def test_what_is_not_greedy_does_not_share_and_says_so(
    gen_kwargs, reason, llava, sweep, environment, monkeypatch, capsys
):
    sweep.write_text(SMALL)
    answers = together(llava, sweep, environment, toy.documents(), monkeypatch, **gen_kwargs)
    assert len(answers) == 3
    assert {record["timing"] for samples in answers.values() for record in samples.values()} == {"own"}
    assert capsys.readouterr().out.count(f"{reason}: this cannot share a prefill") == 1


def test_a_repetition_penalty_sees_the_same_history(llava, sweep, environment, monkeypatch):
    def penalised(folder):
        model = grid.wrapper(llava, environment / folder)
        model.model.generation_config.repetition_penalty = 3.0
        return grid.ask(model, toy.documents())

    plain = grid.ask(grid.wrapper(llava, environment / "plain"), toy.documents())
    alone = penalised("alone")
    monkeypatch.setenv("KV_SWEEP", str(sweep))
    assert penalised("shared") == alone != plain


def test_a_configuration_that_does_not_fit_fails_without_the_others(llava, sweep, environment, monkeypatch):
    docs, proceed = toy.documents(), GridPass._continue
    whole = together(llava, sweep, environment / "whole", docs, monkeypatch)

    def limited(self, prompt, cache, rows, finite):
        if len(rows) > 2 or any((config.method, config.retention) == ("snapkv", 0.5) for _, config in rows):
            raise torch.OutOfMemoryError("out of memory")
        return proceed(self, prompt, cache, rows, finite)

    with monkeypatch.context() as patch:
        patch.setattr(GridPass, "_continue", limited)
        together(llava, sweep, environment / "hit", docs, monkeypatch)
    records = toy.records(environment / "hit")
    failed = [record for record in records if record["status"] == "failed"]
    assert len(failed) == len(docs)
    assert all("OutOfMemoryError" in record["error"] for record in failed)
    assert len(records) == grid.CONFIGURATIONS * len(docs)
    monkeypatch.setenv("KV_CACHE_TYPE", "snapkv")
    monkeypatch.setenv("PRUNE_RATIO", "0.5")
    together(llava, sweep, environment / "hit", docs, monkeypatch)
    again = by_configuration(environment / "hit")
    again.pop((None, None, None))  # the failed ones, which were tried again
    assert_equal(again, whole)
    assert len(toy.records(environment / "hit")) == len(records) + len(failed)


def test_a_broken_sample_fails_in_every_configuration_and_alone(llava, sweep, environment, monkeypatch, capsys):
    docs = toy.documents()
    docs[1]["broken"] = True
    together(llava, sweep, environment, docs, monkeypatch, batch=4)
    records = toy.records(environment)
    assert {record["doc_id"] for record in records if record["status"] == "failed"} == {1}
    assert sum(record["status"] == "ok" for record in records) == grid.CONFIGURATIONS * 3
    assert capsys.readouterr().out.count("toy/1 failed in 8 configurations: OSError: picture cannot be read") == 1

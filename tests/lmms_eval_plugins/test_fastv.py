"""FastV as a value of KV_CACHE_TYPE: answers with their proof of eviction, and failures that say what is possible."""

import json

import pytest

from lmms_eval_plugins.errors import RunStopped
from tiny_vlm import MODEL_DIR

from . import grid, toy

SHARE, LAYERS = 0.6, 6


@pytest.fixture
def fastv(monkeypatch):
    """As a user sets it: 40 % pruned."""
    monkeypatch.setenv("KV_CACHE_TYPE", "fastv")
    monkeypatch.setenv("PRUNE_RATIO", str(1 - SHARE))


def by_doc(folder):
    return {record["doc_id"]: record for record in toy.records(folder)}


def test_the_embedded_model_answers_and_the_record_shows_what_was_pruned(fastv, environment, monkeypatch):
    docs = grid.captions(3)
    answers = grid.ask(grid.wrapper(MODEL_DIR, environment / "batched", batch=3), docs)
    assert grid.ask(grid.wrapper(MODEL_DIR, environment / "single", batch=1), docs) == answers
    for record in toy.records(environment / "batched"):
        assert (record["status"], record["timing"]) == ("ok", "own")
        proof = record["eviction"]
        tokens, vision = proof["prompt_tokens"], proof["vision_tokens"]
        assert (proof["method"], proof["variant"], proof["retention_nominal"]) == ("fastv", "paper", SHARE)
        assert proof["kept_text"] == [tokens - vision] * LAYERS
        assert proof["kept_vision"][:3] == [vision] * 3
        assert len(set(proof["kept_vision"][3:])) == 1
        assert proof["kept_vision"][3] < vision / 2
        assert abs(proof["retention_achieved"] - SHARE) <= 0.5 * 3 / (LAYERS * tokens)
        assert proof["kv_bytes_kept"] < proof["kv_bytes_full"]
    monkeypatch.setenv("KV_CACHE_TYPE", "none")
    monkeypatch.delenv("PRUNE_RATIO")
    assert grid.ask(grid.wrapper(MODEL_DIR, environment / "full", batch=3), docs) != answers


def test_a_share_out_of_reach_fails_the_sample_and_names_the_least(fastv, environment, capsys):
    docs = [*grid.captions(2), {"text": "What is a cat?", "images": []}]
    model = grid.wrapper(MODEL_DIR, environment, batch=3)
    answers = grid.ask(model, docs)
    found = by_doc(environment)
    assert [found[doc_id]["status"] for doc_id in range(3)] == ["ok", "ok", "failed"]
    assert answers[2] == ""
    assert found[2]["answer"] is None
    assert found[2]["error"].startswith("ConfigError: KV_RETENTION=0.6 is out of reach for fastv")
    assert "0 of them vision); use KV_RETENTION=1 (PRUNE_RATIO=0)" in found[2]["error"]
    with pytest.raises(RunStopped):
        model.clean()
    assert "1 of 3 samples failed" in capsys.readouterr().err
    assert json.loads(next(environment.rglob("summary.json")).read_text())["failed"] == 1


@pytest.mark.parametrize(("share", "variant"), [("0.95", "paper"), ("0.5", "paper"), ("0.7", "k2")])
def test_budgets_of_eviction_are_out_of_reach_of_every_sample(share, variant, environment, monkeypatch):
    monkeypatch.setenv("KV_CACHE_TYPE", "FastV")
    monkeypatch.setenv("KV_VARIANT", variant)
    monkeypatch.setenv("PRUNE_RATIO", share)
    grid.ask(grid.wrapper(MODEL_DIR, environment), grid.captions(2))
    errors = [record["error"] for record in toy.records(environment)]
    assert len(errors) == 2
    assert all("out of reach for fastv: it keeps" in error for error in errors)


def test_in_a_sweep_it_runs_on_its_own_with_the_answers_it_gives_alone(fastv, environment, monkeypatch, tmp_path):
    path, docs = tmp_path / "sweep.yaml", grid.captions(2)
    path.write_text("retention: [0.6]\nmethods: [full, tgv_kv, fastv]\n")
    alone = grid.ask(grid.wrapper(MODEL_DIR, environment / "alone"), docs)
    monkeypatch.setenv("KV_SWEEP", str(path))
    assert grid.ask(grid.wrapper(MODEL_DIR, environment / "sweep"), docs) == alone
    timing = {(record["eviction"]["method"], record["timing"]) for record in toy.records(environment / "sweep")}
    assert timing == {("full", "shared"), ("tgv_kv", "shared"), ("fastv", "own")}

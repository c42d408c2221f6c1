"""An answer that a model's broken logits made is no answer, in every kind of pass."""

import pytest
import torch

from tiny_vlm import MODEL_DIR

from . import grid, toy

REASON = "the model's logits are not finite (NaN or infinite) at token {} of the answer"


@pytest.fixture(params=["alone", "shared", "fastv"])
def run(request, environment, monkeypatch):
    """Records of three samples by a model that a hook breaks."""
    monkeypatch.setenv("KV_CACHE_TYPE", "fastv" if request.param == "fastv" else "tgv_kv")
    monkeypatch.setenv("KV_RETENTION", "0.6")
    if request.param == "shared":
        path = environment.with_name("sweep.yaml")
        path.write_text("retention: [0.6]\nmethods: [full, tgv_kv]\n")
        monkeypatch.setenv("KV_SWEEP", str(path))

    def records(hook, tokens=4):
        model = grid.wrapper(MODEL_DIR, environment, batch=3)
        handle = model.model.lm_head.register_forward_hook(hook)
        try:
            grid.ask(model, grid.captions(3), tokens)
        finally:
            handle.remove()
        return toy.records(environment)

    return records


def broken(logits, value):
    logits = logits.clone()
    logits[..., 7] = value
    return logits


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_fail_the_sample(value, run):
    for record in run(lambda module, args, logits: broken(logits, value)):
        assert (record["status"], record["answer"]) == ("failed", None)
        assert record["error"].startswith(REASON.format(1))


def test_so_do_those_of_a_later_token_and_of_one_sample_of_a_batch(run):
    calls = []

    def hook(module, args, logits):
        calls.append(logits.shape)
        if len(calls) % 4 == 3:  # the third token; the failed batch of a retry begins anew
            logits = torch.cat([broken(logits[:1], float("nan")), logits[1:]])
        return logits

    found = run(hook)
    failed = [record for record in found if record["status"] == "failed"]
    assert len(failed) == 1
    assert failed[0]["error"].startswith(REASON.format(3))


def test_what_comes_after_the_answer_does_not_matter(run):
    calls = []

    def hook(module, args, logits):
        calls.append(logits.shape)
        return broken(logits, float("nan")) if len(calls) > 1 else logits

    assert {record["status"] for record in run(hook, tokens=1)} == {"ok"}

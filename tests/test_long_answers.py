"""Over 256 greedy steps every way of decoding answers, token for token, what the masked full cache answers."""

from __future__ import annotations

import pytest
import torch

from kv_caches import KVConfig, attach
from tests.cases import assert_close
from tests.models import build
from tests.oracle import masked_full_cache_logits
from tests.prompts import inputs
from tests.recording import replay_by_running

STEPS = 257  # the first token comes from the prefill
PROMPT = ("two_images", "short_image")
CONFIGS = [KVConfig(), KVConfig("tgv_kv", 0.1), KVConfig("ada_kv", 0.1), KVConfig("h2o", 0.2)]
every_way = pytest.mark.parametrize("graph", [False, True], ids=["steps", "recorded"])


@pytest.fixture(autouse=True)
def recorded_without_a_card(monkeypatch):
    replay_by_running(monkeypatch, room=100)


@every_way
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.method)
@pytest.mark.parametrize("family", ["llava", "qwen3_vl"])
def test_greedy_answers_are_those_of_the_masked_full_cache(family: str, config: KVConfig, graph: bool) -> None:
    model = build(family)
    batch = inputs(model, *PROMPT)
    with attach(model, config, graph=graph) as attachment:
        answer = model.generate(
            **batch,
            max_new_tokens=STEPS,
            do_sample=False,
            eos_token_id=None,
            output_logits=True,
            return_dict_in_generate=True,
        )
        kept = attachment.kept
    tokens = answer.sequences[:, batch["input_ids"].shape[1] :]
    assert tokens.shape[1] == STEPS
    expected = masked_full_cache_logits(model, batch, tokens, kept)
    assert torch.equal(expected.argmax(-1).T, tokens)
    assert_close(torch.stack(answer.logits), expected)

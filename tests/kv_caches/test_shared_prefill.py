"""Many configurations from one prefill give, token for token and to 1e-5, what each gives alone."""

import pytest
import torch

from kv_caches import KVConfig, attach, kernels
from kv_caches.shared import SharedPrefill
from tests.kv_caches.support import tokens_per_update
from tests.models import FAMILIES, build
from tests.prompts import inputs

CONFIGS = [
    KVConfig(),
    KVConfig("tgv_kv", 0.2),
    KVConfig("tgv_kv", 0.5),
    KVConfig("tgv_kv", 0.2, variant="official", decode="evict"),
    KVConfig("snapkv", 0.3),
    KVConfig("elastic_cache", 0.2),
    KVConfig("ada_kv", 0.2),
    KVConfig("look_m", 0.2),
    KVConfig("cake", 0.3),
    KVConfig("h2o", 0.3, decode="evict"),
]
STEPS = 7
OPTIONS = {"do_sample": False, "output_logits": True, "return_dict_in_generate": True}


def alone(model, batch, config):
    with attach(model, config) as attachment:
        output = model.generate(**batch, max_new_tokens=STEPS, **OPTIONS)
        return output.sequences, torch.stack(output.logits), attachment.take_records()


def shared(model, batch, rows):
    with SharedPrefill(model, CONFIGS) as prefill:
        first = model.generate(**batch, max_new_tokens=1, **OPTIONS)
        cache, proofs = prefill.fork(rows)
        inner = prefill.continuation(first.sequences, batch["attention_mask"], rows)
        output = model.generate(**inner, **{kernels.cache_argument(model): cache}, max_new_tokens=STEPS - 1, **OPTIONS)
        index = [sample for sample, _ in rows]
        return output.sequences, torch.stack([first.logits[0][index], *output.logits]), proofs


@pytest.mark.parametrize("family", FAMILIES)
def test_forks_of_a_padded_batch_equal_separate_runs(family):
    model = build(family)
    batch = inputs(model, "two_images", "short_image")
    rows = [(sample, config) for config in CONFIGS for sample in (1, 0)]
    tokens, logits, proofs = shared(model, batch, rows)
    for config in CONFIGS:
        expected_tokens, expected, records = alone(model, batch, config)
        for sample in (0, 1):
            row = rows.index((sample, config))
            assert torch.equal(tokens[row], expected_tokens[sample])
            gap = (logits[:, row] - expected[:, sample]).abs().max() / expected.abs().max()
            assert gap < 1e-5
            same = {k for k in records[sample] if k != "kv_bytes_allocated"}
            assert {k: proofs[row][k] for k in same} == {k: records[sample][k] for k in same}


def test_the_prompt_runs_once_however_many_configurations_decode(monkeypatch):
    model, lengths = build("llava"), tokens_per_update(monkeypatch)
    batch = inputs(model, "image")
    shared(model, batch, [(0, config) for config in CONFIGS])
    assert sum(length > 1 for length in lengths) == model.config.get_text_config().num_hidden_layers


def test_forks_leave_the_prompt_cache_whole():
    model = build("llava")
    batch = inputs(model, "image")
    rows = [(0, config) for config in CONFIGS]
    with SharedPrefill(model, CONFIGS) as prefill:
        model(**batch)
        before = [layer.keys.clone() for layer in prefill._layers]
        prefill.fork(rows)
        prefill.fork(rows[:2])
        assert all(torch.equal(layer.keys, old) for layer, old in zip(prefill._layers, before))

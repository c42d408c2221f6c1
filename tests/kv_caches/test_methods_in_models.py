"""Every method inside real models: padding changes nothing, merging happens, ragged heads free memory, rules evict."""

import pytest
import torch

from kv_caches import KVConfig, attach
from tests.models import build
from tests.prompts import inputs

from .support import at_any_share, every_variant, evicts_at_one

VARIANTS = [
    pair for pair in every_variant() if pair != ("prefix_kv", "offline") and pair[0] not in ("full", "ablation")
]
WITH_RULE = ["h2o", "tova", "elastic_cache", "prefix_kv"]
STEPS = 6


def run(model, batch, config):
    """Logits (steps, B, vocabulary), kept positions, records, and the cache."""
    with attach(model, config) as attachment:
        output = model.generate(
            **batch,
            max_new_tokens=STEPS,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        cache = output["cache"] if "cache" in output else output["past_key_values"]
        kept = [[[s.tolist() for s in sets] for sets in layers] for layers in attachment.kept]
        return torch.stack(output.logits), kept, attachment.take_records(), cache


@pytest.fixture(scope="module")
def model():
    return build("qwen2_5_vl")


@pytest.fixture(scope="module")
def stock(model):
    output = model.generate(
        **inputs(model, "image"),
        max_new_tokens=STEPS,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return torch.stack(output.logits)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_retention_one_is_the_full_cache_to_the_bit(model, stock, name, variant):
    if evicts_at_one(name, variant):
        pytest.skip("its own budgets evict even then")
    logits, *_ = run(model, inputs(model, "image"), KVConfig(name, 1.0, variant))
    assert torch.equal(logits, stock)


MODES = [(name, variant, "append") for name, variant in VARIANTS]
MODES += [(name, variant, "evict") for name, variant in VARIANTS if name in WITH_RULE]


@pytest.mark.parametrize(("name", "variant", "decode"), MODES)
def test_a_padded_batch_equals_single_runs(model, name, variant, decode):
    config = KVConfig(name, 0.2 if (name, variant) in at_any_share() else 0.95, variant, decode)
    together, kept, records, _ = run(model, inputs(model, "image", "short_image"), config)
    for row, kind in enumerate(("image", "short_image")):
        alone, kept_alone, records_alone, _ = run(model, inputs(model, kind, seed=row), config)
        assert kept[row] == kept_alone[0]
        same = ("retention_achieved", "kv_bytes_kept", "official_broke", "kept_text", "kept_vision")
        assert [records[row][key] for key in same] == [records_alone[0][key] for key in same]
        chosen = together[:, row].argmax(-1).tolist()
        agree = alone[:, 0].argmax(-1).tolist()
        assert chosen == agree
        torch.testing.assert_close(together[:, row], alone[:, 0], atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("variant", ["paper", "official"])
def test_elastic_cache_averages_what_leaves_into_what_stays(model, variant):
    batch = inputs(model, "image")
    with torch.no_grad():
        output = model(**batch)
    full = output["cache"] if "cache" in output else output["past_key_values"]
    config = KVConfig("elastic_cache", 0.3, variant)
    with attach(model, config) as attachment, torch.no_grad():
        output = model(**batch)
        pruned = output["cache"] if "cache" in output else output["past_key_values"]
    changed = 0
    for before, after, (kept,) in zip(full.layers, pruned.layers, attachment.kept[0]):
        kept, n = kept.tolist(), before.keys.shape[2]
        gone = [p - 4 * (variant == "official") for p in range(n) if p not in kept]
        for name in ("keys", "values"):
            old, new = getattr(before, name)[0], getattr(after, name)[0]
            for slot, position in enumerate(kept):
                sent = [p for p in gone if min(kept[4:-1], key=lambda k: (abs(k - p), k)) == position]
                expected = (old[:, position] + old[:, sent].sum(1)) / (1 + len(sent))
                torch.testing.assert_close(new[:, slot], expected, atol=1e-5, rtol=0)
                changed += len(sent)
    assert changed


def test_ada_kv_stores_what_its_heads_hold_and_no_more(model):
    batch = inputs(model, "image")
    with attach(model, KVConfig("ada_kv", 0.3)) as attachment:
        output = model(**batch)
        cache, (record,) = (
            output["cache"] if "cache" in output else output["past_key_values"],
            attachment.take_records(),
        )
    entries = 0
    for layer, sets in zip(cache.layers, attachment.kept[0]):
        lengths = [kept.numel() for kept in sets]
        entries += sum(lengths)
        assert layer.keys.untyped_storage().nbytes() == sum(lengths) * layer.keys.shape[-1] * 4
        assert [(line >= 0).sum().item() for line in layer.positions[0]] == lengths
        for line, kept in zip(layer.positions[0], sets):
            assert line[line >= 0].tolist() == kept.tolist()
    assert any(sets[0].numel() != sets[1].numel() for sets in attachment.kept[0])
    size = 2 * cache.layers[0].keys.shape[-1] * 4
    assert record["kv_bytes_kept"] == entries * size
    assert record["kv_bytes_allocated"] == record["kv_bytes_kept"] < record["kv_bytes_full"]


@pytest.mark.parametrize("name", ["h2o", "tova"])
def test_the_cache_does_not_grow_while_decoding(model, name):
    batch = inputs(model, "image")
    _, kept, _, cache = run(model, batch, KVConfig(name, 0.3, decode="evict"))
    assert [layer.keys.shape[2] for layer in cache.layers] == [len(layer[0]) for layer in kept[0]]
    assert all(int(layer.positions.max()) == batch["input_ids"].shape[1] + STEPS - 2 for layer in cache.layers)
    _, kept, _, cache = run(model, batch, KVConfig(name, 0.3))
    assert [layer.keys.shape[2] for layer in cache.layers] == [len(layer[0]) + STEPS - 1 for layer in kept[0]]


def test_a_released_code_that_dies_while_decoding_says_so_in_the_record(model):
    batch = inputs(model, "image")
    _, _, (dead,), _ = run(model, batch, KVConfig("elastic_cache", 0.3, "official", decode="evict"))
    assert dead["official_broke"]
    _, _, (alive,), _ = run(model, batch, KVConfig("elastic_cache", 0.3, "official"))
    assert not alive["official_broke"]


def test_random_sets_belong_to_the_sample_not_to_its_place_in_the_batch(model):
    config = KVConfig("random", 0.2)
    first, second = inputs(model, "image", seed=1), inputs(model, "image", seed=2)
    both = inputs(model, "image", "image", seed=1)
    _, one, *_ = run(model, first, config)
    _, two, *_ = run(model, second, config)
    assert one != two
    assert run(model, both, config)[1] == [*one, *two]

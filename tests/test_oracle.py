"""The judge itself: padding does no harm in stock, and the oracle hides exactly what it is told to hide."""

from __future__ import annotations

import pytest
import torch

from tests.models import FAMILIES, build
from tests.oracle import answer_tokens, forced_logits, masked_full_cache_logits, prefill_of
from tests.prompts import collate, inputs, kinds, sample

ALL = (*FAMILIES, "llava_next_sliding")
STEPS = 5


def everything(batch: dict[str, torch.Tensor], layers: int = 4) -> list:
    """Kept sets that keep all positions of all samples."""
    return [[[range(int(row.sum()))]] * layers for row in batch["attention_mask"]]


def gap(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Largest difference, as a share of the largest logit."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.parametrize("family", ALL)
def test_padded_rows_equal_single_runs_in_stock(family: str) -> None:
    model = build(family)
    names = kinds(model.config.model_type)
    for pair in zip(names, [*names[1:], names[0]], strict=True):
        tokens = answer_tokens(2, STEPS)
        together = forced_logits(model, inputs(model, *pair), tokens)
        for row, kind in enumerate(pair):
            alone = forced_logits(model, collate(model, [sample(model, kind, row)]), tokens[row : row + 1])
            assert gap(together[:, row], alone[:, 0]) < 1e-5


@pytest.mark.parametrize("family", ALL)
def test_with_nothing_hidden_the_oracle_is_stock(family: str) -> None:
    model = build(family)
    for batch in (inputs(model, "two_images"), inputs(model, "text", "image")):
        tokens = answer_tokens(len(batch["input_ids"]), STEPS)
        stock = forced_logits(model, batch, tokens)
        assert gap(masked_full_cache_logits(model, batch, tokens, everything(batch)), stock) < 1e-5
        assert torch.equal(forced_logits(model, batch, tokens), stock)  # and leaves the model as it was


@pytest.mark.parametrize("family", FAMILIES)
def test_one_hidden_entry_shows(family: str) -> None:
    model = build(family)
    batch, tokens = inputs(model, "image"), answer_tokens(1, STEPS)
    stock = forced_logits(model, batch, tokens)
    important = int(prefill_of(model, batch)[0].attention[0].mean(0).sum(0).argmax())
    kept = everything(batch)
    kept[0] = [[[p for p in layer[0] if p != important or number != 0]] for number, layer in enumerate(kept[0])]
    logits = masked_full_cache_logits(model, batch, tokens, kept)
    assert gap(logits[:1], stock[:1]) < 1e-6  # the prefill is not touched
    assert all(gap(logits[step], stock[step]) > 1e-3 for step in range(1, STEPS))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_hides_per_sample_per_layer_and_per_head_as_single_runs_do(family: str) -> None:
    model, random = build(family), torch.Generator().manual_seed(3)
    batch, tokens = inputs(model, "image", "text"), answer_tokens(2, STEPS)
    lengths = batch["attention_mask"].sum(1).tolist()
    kept = [
        [[sorted(torch.randperm(n, generator=random)[: 6 + layer].tolist()) for _ in range(2)] for layer in range(4)]
        for n in lengths
    ]
    together = masked_full_cache_logits(model, batch, tokens, kept)
    for row, kind in enumerate(("image", "text")):
        single = collate(model, [sample(model, kind, row)])
        alone = masked_full_cache_logits(model, single, tokens[row : row + 1], kept[row : row + 1])
        assert gap(together[:, row], alone[:, 0]) < 1e-5
        assert gap(forced_logits(model, single, tokens[row : row + 1])[1:], alone[1:]) > 1e-2


def test_an_entry_evicted_at_a_step_is_seen_before_it_and_not_after() -> None:
    model = build("llava")
    batch, tokens = inputs(model, "image"), answer_tokens(1, STEPS)
    stock = forced_logits(model, batch, tokens)
    late = [(3, 0, layer, None, range(0, 30)) for layer in range(4)]
    logits = masked_full_cache_logits(model, batch, tokens, everything(batch), evicted_at_step=late)
    differs = [gap(logits[step], stock[step]) > 1e-3 for step in range(STEPS)]
    assert differs == [False, False, False, True, True]


def test_a_decode_rule_sees_the_attention_of_each_step_and_can_hide() -> None:
    model, rows = build("llava"), []
    batch, tokens = inputs(model, "short_image", "image"), answer_tokens(2, STEPS)

    def rule(oracle, layer: int, step: int, weights: torch.Tensor) -> None:
        rows.append((layer, step, tuple(weights.shape), float(weights.sum(-1).min())))
        if step == 2:
            oracle.hide(layer, 1, [0], step=3)

    logits = masked_full_cache_logits(model, batch, tokens, everything(batch), on_step=rule)
    hidden = [(3, 1, layer, None, [0]) for layer in range(4)]
    same = masked_full_cache_logits(model, batch, tokens, everything(batch), evicted_at_step=hidden)
    assert torch.equal(logits, same)
    width = batch["input_ids"].shape[1]
    assert [row[:3] for row in rows] == [
        (layer, step, (2, 4, width + step)) for step in range(1, STEPS) for layer in range(4)
    ]
    assert min(row[3] for row in rows) == pytest.approx(1, abs=1e-5)


def test_merged_keys_and_values_replace_those_of_the_prompt() -> None:
    model = build("qwen2_5_vl")
    batch, tokens = inputs(model, "image"), answer_tokens(1, STEPS)
    seen = prefill_of(model, batch)[0]
    own = [(k[None], v[None]) for k, v in zip(seen.keys, seen.values, strict=True)]
    stock = forced_logits(model, batch, tokens)
    assert gap(masked_full_cache_logits(model, batch, tokens, everything(batch), merged=own), stock) < 1e-5
    other = [(k, -v) for k, v in own]
    logits = masked_full_cache_logits(model, batch, tokens, everything(batch), merged=other)
    assert gap(logits[:1], stock[:1]) < 1e-6
    assert gap(logits[1:], stock[1:]) > 1e-2


@pytest.mark.parametrize("family", FAMILIES)
def test_the_recorded_attention_is_the_eager_model_s_own(family: str) -> None:
    model = build(family, "eager")
    batch = inputs(model, "image")
    output = model(**batch, output_attentions=True)
    theirs = torch.stack(output.attentions)[:, 0].double()
    assert torch.allclose(prefill_of(model, batch)[0].attention, theirs, atol=1e-6)

"""The route over a flash kernel, with a stand-in for it: no CPU has one, but names, masks and layouts are the same."""

import pytest
import torch
from torch.nn import functional as F
from transformers import AttentionInterface

from kv_caches import KVConfig, attach, kernels
from tests.models import build
from tests.prompts import inputs

CALLS: list[tuple[int, str]] = []


def stand_in(module, query, key, value, mask, scaling=None, sliding_window=None, **kwargs):
    """Takes what flash kernels take: a (B, S) padding mask or None, causal for several queries, grouped KV heads."""
    assert module.config._attn_implementation == "flash_attention_2"  # flash code looks its kernel up by this name
    assert mask is None or mask.dim() == 2
    n, width = query.shape[2], key.shape[2]
    visible = torch.ones(n, width, dtype=torch.bool).tril(width - n)[None, None]
    if mask is not None:
        # a padding query sees itself, so that its row, which nobody reads, is a number
        visible = visible & mask[:, None, None].bool() | torch.eye(n, width, dtype=torch.bool)
    CALLS.append((n, "masked" if mask is not None else "plain"))
    repeat = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
    return F.scaled_dot_product_attention(query, key, value, visible, scale=scaling).transpose(1, 2), None


@pytest.fixture
def flash():
    model, original = build("llava"), AttentionInterface._global_mapping["flash_attention_2"]
    AttentionInterface.register("flash_attention_2", stand_in)
    model.get_decoder().config._attn_implementation = "flash_attention_2"
    CALLS.clear()
    yield model
    model.get_decoder().config._attn_implementation = "sdpa"
    AttentionInterface.register("flash_attention_2", original)


def logits(model, batch, config):
    with attach(model, config):
        output = model.generate(
            **batch, max_new_tokens=5, do_sample=False, output_logits=True, return_dict_in_generate=True
        )
    return torch.stack(output.logits)


@pytest.mark.parametrize("rows", [("image",), ("two_images", "short_image")], ids=len)
def test_pruned_layers_run_on_it_too_each_row_without_padding(flash, rows):
    batch, config = inputs(flash, *rows), KVConfig("fastv", 0.96)
    ours = logits(flash, batch, config)
    width = batch["input_ids"].shape[1]
    pruned = [call for call in CALLS if 1 < call[0] < width]
    assert len(pruned) == len(rows)
    assert {mask for _, mask in pruned} == {"plain"}
    flash.get_decoder().config._attn_implementation = "sdpa"
    theirs = logits(flash, batch, config)
    assert (ours - theirs).abs().max() / theirs.abs().max() < 1e-5


@pytest.mark.parametrize(
    "config", [KVConfig(), KVConfig("tgv_kv", 0.3), KVConfig("ada_kv", 0.3)], ids=lambda c: c.method
)
@pytest.mark.parametrize("rows", [("image",), ("two_images", "short_image")], ids=len)
def test_a_flash_kernel_gives_what_sdpa_gives(flash, config, rows):
    batch = inputs(flash, *rows)
    ours = logits(flash, batch, config)
    layers = flash.config.get_text_config().num_hidden_layers
    prefill = [call for call in CALLS if call[0] > 1]
    assert prefill == [(batch["input_ids"].shape[1], "masked" if len(rows) > 1 else "plain")] * layers
    assert flash.get_decoder().config._attn_implementation == "flash_attention_2"
    flash.get_decoder().config._attn_implementation = "sdpa"
    expected = logits(flash, batch, config)
    assert (ours - expected).abs().max() / expected.abs().max() < 1e-5


def test_an_unknown_kernel_is_refused():
    with pytest.raises(kernels.UnsupportedError, match="'flash_attention_9' is not known"):
        kernels.register("flash_attention_9")

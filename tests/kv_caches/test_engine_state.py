"""What attaching leaves behind: nothing. What it frees: everything evicted. What it cannot do right, it refuses."""

import pytest
import torch
from transformers import DynamicCache

from kv_caches import ConfigError, KVConfig, UnsupportedError, attach, kernels
from tests.kv_caches.support import tokens_per_update
from tests.models import FAMILIES, build
from tests.prompts import inputs

TGV = KVConfig("tgv_kv", 0.2)


def generate(model, batch, **options):
    defaults = {"max_new_tokens": 6, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    return model.generate(**batch, **(defaults | options))


def logits(model, batch, **options):
    return torch.stack(generate(model, batch, **options).logits)


def cache_of(output):
    return output["cache"] if "cache" in output else output["past_key_values"]


@pytest.mark.parametrize("family", FAMILIES)
def test_full_then_method_then_full_gives_the_first_answer_again(family):
    model, batch = build(family), inputs(build(family), "image")
    stock = logits(model, batch)
    with attach(model, KVConfig()):
        assert torch.equal(logits(model, batch), stock)
    with attach(model, TGV):
        evicted = logits(model, batch)
    with attach(model, KVConfig()):
        assert torch.equal(logits(model, batch), stock)
    assert torch.equal(logits(model, batch), stock)
    assert not torch.allclose(evicted[1:], stock[1:], atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_does_not_depend_on_the_prompt_before_it(family):
    model = build(family)
    first, other = inputs(model, "image"), inputs(model, "two_images", seed=5)
    with attach(model, TGV):
        alone = logits(model, first)
        logits(model, other)
        assert torch.equal(logits(model, first), alone)


@pytest.mark.parametrize("config", [TGV, KVConfig("tgv_kv", 0.2, variant="official")], ids=lambda c: c.variant)
@pytest.mark.parametrize("rows", [("image",), ("image", "short_image")], ids=len)
def test_storage_after_the_prefill_holds_the_kept_entries_only(config, rows):
    model = build("llava")
    batch, text = inputs(model, *rows), model.config.get_text_config()
    entry = 2 * text.num_key_value_heads * text.head_dim * 4
    with attach(model, config) as attachment:
        cache = cache_of(model(**batch))
        for index, layer in enumerate(cache.layers):
            entries = sum(kept[index][0].numel() for kept in attachment.kept)
            for tensor in (layer.keys, layer.values):
                assert tensor.untyped_storage().nbytes() == entries * entry // 2
        record = attachment.take_records()[0]
    kept = sum(layer[0].numel() for layer in attachment.kept[0])
    assert record["kv_bytes_kept"] == kept * entry
    assert record["kv_bytes_full"] == record["prompt_tokens"] * len(cache.layers) * entry
    assert sum(record["kept_text"]) + sum(record["kept_vision"]) == kept
    assert record["retention_achieved"] == pytest.approx(kept / record["prompt_tokens"] / len(cache.layers))
    assert record["kv_bytes_allocated"] == record["kv_bytes_kept"]


def test_the_prompt_is_prefilled_once_and_one_token_follows_per_step(monkeypatch):
    model, lengths = build("qwen3_vl"), tokens_per_update(monkeypatch)
    batch = inputs(model, "image")
    with attach(model, TGV):
        generate(model, batch)
    layers = model.config.get_text_config().num_hidden_layers
    assert lengths == [batch["input_ids"].shape[1]] * layers + [1] * layers * 5


def test_an_exception_in_the_middle_of_a_prefill_leaves_the_model_usable(monkeypatch):
    model = build("llava")
    batch = inputs(model, "image")
    with attach(model, TGV) as attachment:
        expected = logits(model, batch)
        attachment.take_records()
        with monkeypatch.context() as patch:
            patch.setattr(model.get_decoder().layers[2].mlp, "forward", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                generate(model, batch)
        assert attachment.take_records() == []
        assert attachment._cache is None
        assert torch.equal(logits(model, batch), expected)
    with pytest.raises(ZeroDivisionError), attach(model, TGV):
        raise ZeroDivisionError
    assert model.get_decoder().config._attn_implementation == "sdpa"


@pytest.mark.parametrize("family", FAMILIES)
def test_detaching_restores_the_model_exactly(family):
    model = build(family)
    before = [(m, dict(m._forward_hooks), dict(m._forward_pre_hooks), set(vars(m))) for m in model.modules()]
    text = model.config.get_text_config()
    attachment = attach(model, TGV)
    assert text._attn_implementation == "kv_sdpa"
    attachment.detach()
    attachment.detach()
    assert text._attn_implementation == "sdpa"
    assert not any(module in kernels.HANDLERS for module in model.modules())
    assert before == [(m, dict(m._forward_hooks), dict(m._forward_pre_hooks), set(vars(m))) for m in model.modules()]


def test_beams_follow_their_rows():
    model = build("llava")
    batch = inputs(model, "image")
    options = {"num_beams": 3, "max_new_tokens": 6, "do_sample": False}
    stock = model.generate(**batch, **options)
    with attach(model, KVConfig()):
        assert torch.equal(model.generate(**batch, **options), stock)
    with attach(model, TGV):
        assert model.generate(**batch, **options).shape[1] == stock.shape[1]


def refusal(call, *parts):
    with pytest.raises((UnsupportedError, ValueError, NotImplementedError)) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)


def test_calls_that_cannot_be_evicted_from_are_refused_by_name():
    model = build("llava")
    batch = inputs(model, "image")
    ids = batch["input_ids"]
    with attach(model, TGV):
        refusal(lambda: attach(model, TGV), "attached already")
        refusal(lambda: model(**batch, use_cache=False), "use_cache=False")
        refusal(lambda: generate(model, batch, cache_implementation="static"), "StaticCache")
        refusal(lambda: generate(model, batch, prefill_chunk_size=16), "one per step")
        refusal(lambda: model(inputs_embeds=torch.zeros(1, 4, 64)), "input_ids are needed")
        refusal(lambda: model.model(**batch), "must be called itself")
        mask = torch.ones_like(ids)
        mask[0, -1] = 0
        refusal(lambda: model(**(batch | {"attention_mask": mask})), "padding must be on the left")
        refusal(lambda: model(**(batch | {"attention_mask": mask * 0})), "has no token")
        evict = KVConfig("tgv_kv", 0.2, variant="official", decode="evict")
    with attach(model, evict):
        refusal(lambda: generate(model, batch, num_beams=2, output_logits=False), "KV_DECODE=evict")


def test_changing_the_kernel_while_attached_is_refused():
    model = build("llava")
    try:
        with attach(model, TGV):
            model.set_attn_implementation("eager")
            refusal(lambda: generate(model, inputs(model, "image")), "was changed while attached")
    finally:
        model.set_attn_implementation("sdpa")


def test_a_cache_filled_while_detached_is_refused():
    model = build("llava")
    cache = DynamicCache()
    model(**inputs(model, "image"), **{kernels.cache_argument(model): cache})
    with attach(model, TGV):
        step = {"input_ids": torch.tensor([[7]]), kernels.cache_argument(model): cache}
        refusal(lambda: model(**step), "not attached")


def test_layer_types_that_hold_no_entries_are_refused_by_name(monkeypatch):
    model = build("qwen3_vl")
    monkeypatch.setattr(
        model.config.get_text_config(), "layer_types", ["full_attention", "linear_attention"] * 2, False
    )
    refusal(lambda: attach(model, TGV), "linear_attention")


def test_a_model_type_of_another_model_is_refused():
    with pytest.raises(ConfigError, match=r"MODEL_TYPE='qwen-4B' contradicts the loaded model: .*model_type llava"):
        attach(build("llava"), KVConfig("tgv_kv", 0.2, model_type="qwen-4B"))


def test_the_methods_work_on_a_text_only_language_model():
    model = build("llava").get_decoder()
    from transformers import LlamaForCausalLM

    language = LlamaForCausalLM(model.config).eval()
    ids = torch.randint(5, 100, (1, 30), generator=torch.Generator().manual_seed(0))
    with attach(language, TGV) as attachment:
        language.generate(ids, max_new_tokens=3, do_sample=False)
        assert sum(layer[0].numel() for layer in attachment.kept[0]) == 30 * 4 // 5


def test_several_embeddings_after_the_prompt_are_refused_as_several_ids_are():
    model = build("llava")
    with attach(model, TGV), torch.no_grad():
        cache = cache_of(model(**inputs(model, "image")))
        embeds = model.get_input_embeddings()(torch.tensor([[5, 6, 7]]))
        with pytest.raises(UnsupportedError, match="3 tokens after the prompt in one call"):
            model(inputs_embeds=embeds, use_cache=True, **{kernels.cache_argument(model): cache})

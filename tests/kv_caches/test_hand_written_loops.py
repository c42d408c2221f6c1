"""A decode loop of one's own answers as `generate` does, however it passes the cache, the mask and the prompts."""

import inspect

import pytest
import torch
from transformers import DynamicCache

from kv_caches import KVConfig, UnsupportedError, attach, kernels
from kv_caches.shared import SharedPrefill
from tests.models import FAMILIES, build
from tests.oracle import answer_tokens, forced_logits
from tests.prompts import inputs

CONFIGS = [
    KVConfig(),
    KVConfig("tgv_kv", 0.3),
    KVConfig("tgv_kv", 0.3, variant="official", decode="evict"),
    KVConfig("prefix_kv", 0.3, decode="evict"),
    KVConfig("elastic_cache", 0.3, variant="official"),
    KVConfig("ada_kv", 0.3),
]
NAMES = ("cache", "past_key_values")
STEPS = 5
TGV = KVConfig("tgv_kv", 0.3)


def cache_of(output):
    return output["cache"] if "cache" in output else output["past_key_values"]


def by_name(model, given):
    return model(**given)


def by_position(model, given):
    """Everything up to the cache by position, what comes behind it by name."""
    parameters = list(inspect.signature(model.forward).parameters)
    given = {kernels.cache_argument(model) if name in NAMES else name: value for name, value in given.items()}
    count = parameters.index(kernels.cache_argument(model)) + 1
    first = [given.pop(name, None) for name in parameters[:count]]
    return model(*first, **given)


class Loop:
    """A prompt and the logits of its forced answer, one call at a time."""

    def __init__(self, model, batch, tokens, name="cache", call=by_name, mask=True):
        self.model, self.tokens, self.name, self.call = model, tokens, name, call
        self.mask = batch["attention_mask"] if mask else None
        prompt = batch | {name: DynamicCache()}
        if not mask:
            prompt.pop("attention_mask")
        output = call(model, prompt)
        self.cache, self.logits = cache_of(output), [output.logits[:, -1]]

    def step(self):
        given = {"input_ids": self.tokens[:, len(self.logits) - 1, None], self.name: self.cache}
        if self.mask is not None:
            self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], dim=1)
            given["attention_mask"] = self.mask
        output = self.call(self.model, given)
        self.cache = cache_of(output)
        self.logits.append(output.logits[:, -1])

    def run(self):
        for _ in range(self.tokens.shape[1] - 1):
            self.step()
        return torch.stack(self.logits)


def close(ours, theirs):
    return (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


def generated(model, batch, tokens, config):
    """Logits and records of `generate`."""
    with attach(model, config) as attachment:
        return forced_logits(model, batch, tokens), attachment.take_records()


def looped(model, batch, tokens, config, **options):
    with attach(model, config) as attachment, torch.no_grad():
        return Loop(model, batch, tokens, **options).run(), attachment.take_records()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.method}-{c.variant}-{c.decode}")
@pytest.mark.parametrize("family", FAMILIES)
def test_both_names_of_the_cache_give_the_answer_of_generate_and_one_record(family, config):
    model, tokens = build(family), answer_tokens(1, STEPS)
    batch = inputs(model, "image")
    expected, records = generated(model, batch, tokens, config)
    for name in NAMES:
        logits, ours = looped(model, batch, tokens, config, name=name)
        assert close(logits, expected)
        assert ours == records
        assert len(ours) == 1


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_arguments_by_position_are_those_by_name(family, mask):
    model, tokens = build(family), answer_tokens(1, STEPS)
    batch = inputs(model, "image")
    expected, records = generated(model, batch, tokens, TGV)
    logits, ours = looped(model, batch, tokens, TGV, call=by_position, mask=mask)
    assert close(logits, expected)
    assert ours == records


def test_a_mask_by_position_says_what_is_padding():
    model = build("llava")
    batch = inputs(model, "image", "short_image")
    with attach(model, TGV) as attachment, torch.no_grad():
        by_position(model, dict(batch) | {"cache": DynamicCache()})
        by_name(model, batch)
        lengths = [record["prompt_tokens"] for record in attachment.take_records()]
    assert lengths == [*batch["attention_mask"].sum(-1).tolist()] * 2


def test_calls_that_say_two_things_are_refused():
    model = build("llava")
    batch = inputs(model, "image")
    with attach(model, TGV), torch.no_grad():
        with pytest.raises(UnsupportedError, match="cache and past_key_values are two different caches"):
            model(**batch, cache=DynamicCache(), past_key_values=DynamicCache())
        same = DynamicCache()
        assert cache_of(model(**batch, cache=same, past_key_values=same)) is same
        with pytest.raises(UnsupportedError, match="a cache of type tuple"):
            model(**batch, past_key_values=((torch.zeros(1),) * 2,) * 4)
        with pytest.raises(TypeError, match="two values for input_ids"):
            model(batch["input_ids"], **batch)
        with pytest.raises(TypeError, match="arguments by position, 99 were given"):
            model(*[None] * 99)
        whole = {"full_attention": batch["attention_mask"][:, None, None]}
        for mask, kind in ((batch["attention_mask"][:, None, None], "4-dimensional"), (whole, "not dict")):
            with pytest.raises(UnsupportedError, match=f"attention_mask must be .*{kind}"):
                by_position(model, batch | {"attention_mask": mask})


@pytest.mark.parametrize("kinds", [("video", "image"), ("text", "two_images"), ("image", "text")], ids="+".join)
@pytest.mark.parametrize("config", [KVConfig(), TGV], ids=lambda c: c.method)
@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_prompts_in_flight_together_keep_their_own_positions(family, config, kinds):
    model, tokens = build(family), [answer_tokens(1, STEPS, seed) for seed in (3, 4)]
    batches = [inputs(model, kind, seed=place) for place, kind in enumerate(kinds)]
    expected = [generated(model, batch, answer, config) for batch, answer in zip(batches, tokens)]
    with attach(model, config) as attachment, torch.no_grad():
        loops = [Loop(model, *each, mask=bool(place)) for place, each in enumerate(zip(batches, tokens))]
        for _ in range(STEPS - 1):
            for loop in loops:
                loop.step()
        records = attachment.take_records()
    for loop, (logits, record), ours in zip(loops, expected, records):
        assert close(torch.stack(loop.logits), logits)
        assert [ours] == record


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_generate_continues_a_prompt_although_a_larger_batch_ran_since(family):
    model, tokens = build(family), answer_tokens(2, STEPS)
    batch, other = inputs(model, "video", "image"), inputs(model, "text", "image", "two_images")
    name = kernels.cache_argument(model)
    expected, _ = generated(model, batch, tokens, TGV)
    with attach(model, TGV), torch.no_grad():
        output = model.generate(**batch, max_new_tokens=1, do_sample=False, return_dict_in_generate=True)
        model.generate(**other, max_new_tokens=2, do_sample=False)
        ids = torch.cat([batch["input_ids"], tokens[:, :1]], dim=1)
        mask = torch.cat([batch["attention_mask"], torch.ones(2, 1, dtype=torch.long)], dim=1)
        rest = {"input_ids": ids, "attention_mask": mask, name: cache_of(output)}
        assert close(forced_logits(model, rest, tokens[:, 1:]), expected[1:])


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_forks_continue_although_a_larger_batch_ran_since(family):
    model, tokens = build(family), answer_tokens(2, STEPS)
    batch, other = inputs(model, "video", "image"), inputs(model, "text", "image", "two_images")
    rows = [(1, TGV), (0, TGV), (1, TGV)]
    expected, _ = generated(model, batch, tokens, TGV)
    with SharedPrefill(model, [TGV]) as shared:
        model.generate(**batch, max_new_tokens=1, do_sample=False)
        cache, _ = shared.fork(rows)
        model.generate(**other, max_new_tokens=2, do_sample=False)
        samples = [sample for sample, _ in rows]
        sequences = torch.cat([batch["input_ids"], tokens[:, :1]], dim=1)
        rest = shared.continuation(sequences, batch["attention_mask"], rows) | {kernels.cache_argument(model): cache}
        assert close(forced_logits(model, rest, tokens[samples, 1:]), expected[1:, samples])

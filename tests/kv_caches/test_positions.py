"""M-RoPE positions of every decode step are those of the full cache, whatever left it and whatever ran before."""

from contextlib import contextmanager

import pytest
import torch

from kv_caches import KVConfig, attach, kernels
from kv_caches.shared import SharedPrefill
from tests.models import build
from tests.oracle import answer_tokens, forced_logits
from tests.prompts import inputs

FAMILIES = ("qwen2_5_vl", "qwen3_vl")
PROMPTS = [("image",), ("video",), ("two_images",), ("image", "video"), ("video", "short_image"), ("text", "video")]
CONFIGS = [
    KVConfig("tgv_kv", 0.1),
    KVConfig("tgv_kv", 0.3, variant="official", decode="evict"),
    KVConfig("h2o", 0.3, decode="evict"),
    KVConfig("ada_kv", 0.2),
]
STEPS = 6


@contextmanager
def positions_of(model):
    """Collects what the rotary embedding is called with, (3, rows, tokens) per forward call."""
    seen = []

    def hook(module, args, kwargs):
        positions = kwargs["position_ids"] if "position_ids" in kwargs else args[1]
        seen.append(positions[-3:].expand(3, -1, -1).clone())  # the text's own axis, where there is one, left out

    handle = model.get_decoder().rotary_emb.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()


def run(model, batch):
    """Positions of a prefill and of the steps after it."""
    with positions_of(model) as seen:
        forced_logits(model, batch, answer_tokens(len(batch["input_ids"]), STEPS + 1))
    return seen


def assert_equal(ours, theirs):
    assert [one.shape for one in ours] == [one.shape for one in theirs]
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def assert_goes_on(seen, mask):
    """Each step's position is one above the largest before it, on all axes."""
    prompt, *steps = seen
    assert len(steps) == STEPS
    largest = prompt.masked_fill(~mask.bool(), -1).amax(dim=(0, 2))
    for number, step in enumerate(steps, 1):
        assert torch.equal(step[:, :, 0], (largest + number).expand(3, -1))


@pytest.mark.parametrize("prompt", PROMPTS, ids="+".join)
@pytest.mark.parametrize("family", FAMILIES)
def test_positions_after_eviction_are_those_of_the_full_cache(family, prompt):
    model = build(family)
    batch = inputs(model, *prompt)
    stock = run(model, batch)
    assert_goes_on(stock, batch["attention_mask"])
    for config in CONFIGS:
        with attach(model, config):
            assert_equal(run(model, batch), stock)


@pytest.mark.parametrize("prompt", PROMPTS, ids="+".join)
@pytest.mark.parametrize("family", FAMILIES)
def test_so_are_those_of_forks_in_any_order(family, prompt):
    model = build(family)
    batch = inputs(model, *prompt)
    stock = run(model, batch)
    rows = [(sample, config) for config in CONFIGS for sample in reversed(range(len(prompt)))]
    for chosen in (rows, rows[::3], rows[:1]):
        seen = forked(model, batch, chosen)
        samples = [sample for sample, _ in chosen]
        assert_equal(seen, [step[:, samples] for step in stock[1:]])


def forked(model, batch, rows):
    """Positions of the steps of forks that share a prefill."""
    with SharedPrefill(model, CONFIGS) as shared:
        first = model.generate(**batch, max_new_tokens=1, do_sample=False)
        return steps_of(model, shared, first, batch, rows)


def steps_of(model, shared, first, batch, rows):
    cache, _ = shared.fork(rows)
    inner = shared.continuation(first, batch["attention_mask"], rows)
    with positions_of(model) as seen:
        model.generate(**inner, **{kernels.cache_argument(model): cache}, max_new_tokens=STEPS, do_sample=False)
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_a_second_prompt_does_not_go_on_at_the_positions_of_the_first(family):
    model = build(family)
    kinds = [("video",), ("text",), ("image", "video"), ("text",), ("short_image",)]
    stock = [run(build.__wrapped__(family), inputs(model, *kind)) for kind in kinds]
    assert len({int(seen[1][-1, 0, 0]) - seen[0].shape[-1] for seen in stock}) > 2
    with attach(model, CONFIGS[0]):
        for kind, expected in zip(kinds, stock, strict=True):
            assert_equal(run(model, inputs(model, *kind)), expected)
    for kind, expected in zip(kinds, stock, strict=True):
        seen = forked(model, inputs(model, *kind), [(0, CONFIGS[0])])
        assert_equal(seen, [step[:, :1] for step in expected[1:]])


@pytest.mark.parametrize("family", FAMILIES)
def test_forks_go_on_at_their_own_positions_although_another_prompt_ran_in_between(family):
    model = build(family)
    batch, other = inputs(model, "video"), inputs(model, "text")
    expected = run(model, batch)
    rows = [(0, config) for config in CONFIGS]
    with SharedPrefill(model, CONFIGS) as shared:
        first = model.generate(**batch, max_new_tokens=1, do_sample=False)
        for _ in range(2):
            seen = steps_of(model, shared, first, batch, rows)
            assert_equal(seen, [step.expand(-1, len(rows), -1) for step in expected[1:]])
            model.model.rope_deltas = model.model.rope_deltas + 7  # as any other prompt would leave it
    assert_equal(run(model, other), run(build.__wrapped__(family), other))

"""What a cache holds after every decode step is in the record, and is what really is stored."""

from contextlib import contextmanager
from itertools import pairwise

import pytest
import torch

from kv_caches import KVConfig, attach, kernels
from kv_caches.cache import EMPTY
from kv_caches.records import entries_of_answer
from kv_caches.shared import SharedPrefill
from tests.models import build
from tests.prompts import inputs

CONFIGS = [
    KVConfig(),
    KVConfig("tgv_kv", 0.2),
    KVConfig("tgv_kv", 0.2, variant="official", decode="evict"),
    KVConfig("tgv_kv", 0.2, variant="official"),
    KVConfig("h2o", 0.3, decode="evict"),
    KVConfig("prefix_kv", 0.3, decode="evict"),
    KVConfig("ada_kv", 0.2),
]
STEPS = 9
PROMPTS = [("image",), ("two_images", "short_image")]


@contextmanager
def counted(model):
    """Per forward call and row, entries that are stored: counted from positions, the mean over KV heads."""
    seen, argument = [], kernels.cache_argument(model)

    def hook(module, args, kwargs, output):
        layers = (kwargs[argument] if argument in kwargs else output[argument]).layers
        slots = [(layer.positions != EMPTY).double().sum(-1).mean(-1) for layer in layers]
        seen.append(torch.stack(slots).sum(0).tolist())

    handle = model.register_forward_hook(hook, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()


def per_row(seen):
    return [list(row) for row in zip(*seen, strict=True)]


@pytest.mark.parametrize("prompt", PROMPTS, ids="+".join)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.method}-{c.variant}-{c.decode}")
def test_the_record_says_what_is_stored_after_every_step(config, prompt):
    model = build("qwen3_vl")
    with attach(model, config) as attachment, counted(model) as seen:
        model.generate(**inputs(model, *prompt), max_new_tokens=STEPS, do_sample=False)
        noted = [record["entries_per_step"] for record in attachment.take_records()]
    assert noted == per_row(seen)
    layers = model.config.get_text_config().num_hidden_layers
    growth = {after - before for entries in noted for before, after in pairwise(entries)}
    assert growth == {layers} if config.decode == "append" else min(growth) < layers


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl"])
def test_so_it_does_for_forks(family):
    model = build(family)
    batch = inputs(model, *PROMPTS[1])
    rows = [(sample, config) for config in CONFIGS for sample in (1, 0)]
    with SharedPrefill(model, CONFIGS) as shared:
        first = model.generate(**batch, max_new_tokens=1, do_sample=False)
        cache, proofs = shared.fork(rows)
        start = [proof["entries_per_step"][0] for proof in proofs]
        inner = shared.continuation(first, batch["attention_mask"], rows)
        with counted(model) as seen:
            model.generate(**inner, **{kernels.cache_argument(model): cache}, max_new_tokens=STEPS - 1, do_sample=False)
    assert [proof["entries_per_step"] for proof in proofs] == per_row([start, *seen])


def test_beams_count_the_entries_of_one_beam():
    model = build("llava")
    with attach(model, KVConfig("tgv_kv", 0.2)) as attachment:
        model.generate(**inputs(model, "image"), max_new_tokens=4, num_beams=3, do_sample=False)
        noted = {tuple(record["entries_per_step"]) for record in attachment.take_records()}
    (entries,) = noted
    assert [after - before for before, after in pairwise(entries)] == [4] * 3


def test_the_course_is_told_in_short_without_loss():
    entries = [10.5, 14.5, 18.5, 17.5, 17.5, 21.5, 99.0]
    told = entries_of_answer(entries, 6)
    assert told == {
        "start": 10.5,
        "end": 21.5,
        "max": 21.5,
        "mean": 16.667,
        "steps": [[4, 2], [-1, 1], [0, 1], [4, 1]],
    }
    assert entries_of_answer([12.0], 1) == {"start": 12, "end": 12, "max": 12, "mean": 12, "steps": []}

"""FastV over tiny models: what it prunes is seen by nobody in later layers, neither by the prompt nor by the answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from transformers import PreTrainedModel

from kv_caches import ConfigError
from tests.cases import Case, assert_close, case
from tests.models import FAMILIES
from tests.prompts import VIDEO_FAMILIES

DEPTH = {"paper": 3, "k2": 2}
SHARE = {"paper": 0.95, "k2": 0.85}
BATCHES = [("image",), ("two_images",), ("image_first",), ("image_last",), ("image", "two_images", "one_token_tail")]


def check(this: Case, variant: str, retention: float) -> None:
    """The reference's positions, and the logits of prefill and decoding that hiding the others gives."""
    run = this.run("fastv", retention, variant=variant)
    assert run.kept == this.reference("fastv", retention, k=DEPTH[variant])
    hidden = this.masked(run.kept, in_prefill=True)
    assert_close(run.logits, hidden)
    assert (hidden[0] - this.stock[0]).abs().max() > 1e-2
    assert (hidden - this.masked(run.kept)).abs().max() > 1e-2
    for record, layers in zip(run.records, run.kept, strict=True):
        held = [len(positions) for (positions,) in layers]
        assert record["entries_per_step"] == [sum(held) + len(held) * step for step in range(len(this.tokens[0]))]
        assert record["retention_achieved"] == sum(held) / (len(held) * record["prompt_tokens"])
        assert abs(record["retention_achieved"] - retention) <= 0.5 / record["prompt_tokens"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
@pytest.mark.parametrize("variant", DEPTH)
def test_fastv_is_the_masked_full_cache_in_the_prefill_too(family: str, kernel: str, variant: str) -> None:
    for prompts in BATCHES if kernel == "sdpa" else BATCHES[-1:]:
        check(case(family, prompts, kernel), variant, SHARE[variant])
    if family in VIDEO_FAMILIES:
        check(case(family, ("video",), kernel), variant, 0.95)


@pytest.mark.parametrize("prompts", [("image",), ("image", "two_images")])
def test_a_sliding_window_slides_over_true_positions(prompts: tuple[str, ...]) -> None:
    check(case("llava_next_sliding", prompts, "sdpa"), "k2", 0.75)


def test_a_sample_that_cannot_be_pruned_so_far_fails_and_the_model_goes_on() -> None:
    this = case("llava", ("image",), "sdpa")
    for retention in (0.05, 0.5, 0.7):
        with pytest.raises(ConfigError, match=r"KV_RETENTION=0\.\d+ is out of reach for fastv"):
            this.run("fastv", retention)
    check(this, "paper", 0.95)


@contextmanager
def dropped(model: PreTrainedModel, positions: list[int], first: int) -> Iterator[None]:
    """Layers from `first` on run on nothing but the hidden states at the positions, as the paper has it."""

    def narrow(index: int):
        def hook(module, args, kwargs):
            (hidden,) = args
            assert kwargs["attention_mask"] is None  # one prompt without padding: causal
            kwargs["position_embeddings"] = tuple(part[:, positions] for part in kwargs["position_embeddings"])
            return ((hidden[:, positions],) if index == first else args), kwargs

        return hook

    layers = list(enumerate(model.get_decoder().layers))[first:]
    hooks = [layer.register_forward_pre_hook(narrow(index), with_kwargs=True) for index, layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.parametrize("family", ["llava", "llava_onevision", "qwen3_vl"])
@pytest.mark.parametrize("variant", DEPTH)
def test_the_prefill_is_that_of_a_model_whose_hidden_states_are_dropped(family: str, variant: str) -> None:
    this = case(family, ("image",), "sdpa")
    run = this.run("fastv", SHARE[variant], variant=variant)
    with dropped(this.model, run.kept[0][-1][0], DEPTH[variant]), torch.no_grad():
        logits = this.model(**this.inputs, use_cache=False, logits_to_keep=1).logits[:, -1]
    assert_close(run.logits[0], logits)
    assert (logits - this.stock[0]).abs().max() > 1e-2

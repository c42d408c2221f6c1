"""Eviction equals a masked full cache, and keeps what the naive reference keeps, for any model and prompt."""

from __future__ import annotations

import pytest
import torch

from kv_caches import KVConfig, attach
from tests.cases import TOKENS, TOLERANCE, Case, assert_close, case
from tests.engine import EngineRun, run_engine
from tests.models import FAMILIES, build
from tests.oracle import (
    Oracle,
    answer_tokens,
    forced_logits,
    hidden_slots,
    oracle_for,
    watching,
)
from tests.prompts import LAYOUTS, VIDEO_FAMILIES, inputs
from tests.reference import tgv_official

PAIRS = (("image", "short_image"), ("text", "two_images"), ("video", "image"))
VARIANTS = ("paper", "protected", "official")
PROMPTS = [
    (family, prompt)
    for family in FAMILIES
    for prompt in [*((kind,) for kind in LAYOUTS), *PAIRS]
    if "video" not in prompt or family in VIDEO_FAMILIES
]


def name(value: object) -> str | None:
    """Test names that read well."""
    return "+".join(value) if isinstance(value, tuple) else None


every_prompt = pytest.mark.parametrize(("family", "prompt"), PROMPTS, ids=name)
both_kernels = pytest.mark.parametrize("kernel", ["eager", "sdpa"])


def assert_evicted(run: EngineRun, this: Case, variant: str) -> None:
    """The answer of every sample differs from stock, unless the released code breaks on it."""
    for row, vision in enumerate(this.vision):
        broke = variant == "official" and tgv_official.breaks(vision)
        assert run.records[row]["official_broke"] == broke
        gap = (run.logits[1:, row] - this.stock[1:, row]).abs().max()
        assert gap < TOLERANCE * this.stock.abs().max() if broke else gap > 0.05


@every_prompt
@both_kernels
def test_full_through_the_gather_path_is_stock(family: str, prompt: tuple[str, ...], kernel: str) -> None:
    this = case(family, prompt, kernel)
    run = this.run("full", 1.0)
    assert run.kept == this.reference("full", 1.0)
    if len(prompt) == 1:
        assert torch.equal(run.logits, this.stock)
    assert_close(run.logits, this.stock)
    assert torch.equal(forced_logits(this.model, this.inputs, this.tokens), this.stock)


def assert_tgv_kv_is_masked(this: Case, variant: str, retention: float) -> None:
    """The kept positions are the reference's, and the answer is that of the masked full cache."""
    run = this.run("tgv_kv", retention, variant=variant)
    assert run.kept == this.reference("tgv_kv", retention, variant=variant)
    assert torch.equal(run.logits[0], this.stock[0])
    assert_close(run.logits, this.masked(run.kept))
    assert_evicted(run, this, variant)


@every_prompt
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("retention", [0.05, 0.5])
def test_tgv_kv_is_the_masked_full_cache(family: str, prompt: tuple[str, ...], variant: str, retention: float) -> None:
    assert_tgv_kv_is_masked(case(family, prompt, "sdpa"), variant, retention)


@every_prompt
def test_tgv_kv_over_the_eager_kernel(family: str, prompt: tuple[str, ...]) -> None:
    variant = VARIANTS[PROMPTS.index((family, prompt)) % 3]
    assert_tgv_kv_is_masked(case(family, prompt, "eager"), variant, 0.2)


@every_prompt
def test_tgv_kv_official_evicts_while_decoding(family: str, prompt: tuple[str, ...]) -> None:
    this, retention = case(family, prompt, "sdpa"), 0.3 if PROMPTS.index((family, prompt)) % 2 else 0.05
    run = this.run("tgv_kv", retention, variant="official", decode="evict")
    rule = OfficialDecode(this, run.kept, retention)
    assert_close(run.logits, this.masked(run.kept, on_step=rule))
    assert rule.evictions > 0 or all(rule.broken)


@pytest.mark.parametrize("prompt", [("image",), ("text", "two_images")], ids=name)
def test_a_sliding_window_goes_on_sliding_over_true_positions(prompt: tuple[str, ...]) -> None:
    this = case("llava_next_sliding", prompt, "sdpa")
    assert_close(this.run("full", 1.0).logits, this.stock)
    for variant in VARIANTS:
        run = this.run("tgv_kv", 0.2, variant=variant)
        assert run.kept == this.reference("tgv_kv", 0.2, variant=variant)
        assert_close(run.logits, this.masked(run.kept))


@pytest.mark.parametrize("family", FAMILIES)
def test_an_earlier_prompt_leaves_no_trace(family: str) -> None:
    used = build(family)
    config, tokens = KVConfig(method="tgv_kv", retention=0.3), answer_tokens(1, TOKENS)
    for kind in ("two_images", "text", "image"):
        fresh = build.__wrapped__(family)
        run_engine(used, inputs(used, "short_image", "image", seed=9), config, answer_tokens(2, TOKENS))
        again = run_engine(used, inputs(used, kind), config, tokens)
        first = run_engine(fresh, inputs(fresh, kind), config, tokens)
        assert again.kept == first.kept
        assert torch.equal(again.logits, first.logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_beams_read_the_same_evicted_cache(family: str) -> None:
    this = case(family, ("image",), "sdpa")
    options = {"num_beams": 3, "max_new_tokens": TOKENS, "do_sample": False, "num_return_sequences": 3}
    with attach(this.model, KVConfig(method="tgv_kv", retention=0.2)):
        ours = this.model.generate(**this.inputs, **options)
    oracle = oracle_for(this.inputs)
    oracle.hidden_from = hidden_slots(this.reference("tgv_kv", 0.2), oracle, 2, TOKENS)
    with watching(this.model, oracle):
        theirs = this.model.generate(**this.inputs, **options)
    assert torch.equal(ours, theirs)


class OfficialDecode:
    """The released decode rule acting on the oracle's cache, from the oracle's own attention."""

    def __init__(self, this: Case, kept: list, retention: float) -> None:
        self.lengths = [len(vision) for vision in this.vision]
        self.broken = [tgv_official.breaks(vision) for vision in this.vision]
        self.positions = [[list(sets[0]) for sets in layers] for layers in kept]
        self.rho, self.suffix, self.evictions = [], [], 0
        for seen, vision, layers in zip(this.prefills, this.vision, self.positions, strict=True):
            whole = tgv_official.breaks(vision)
            means = seen.attention.mean(1).numpy()
            self.rho.append([] if whole else tgv_official.forget_shares(means, vision, retention))
            self.suffix.append([] if whole else [tgv_official.suffix(row, vision) for row in layers])

    def __call__(self, oracle: Oracle, layer: int, step: int, weights: torch.Tensor) -> None:
        """Hide what the rule evicts after this step."""
        for row, length in enumerate(self.lengths):
            if self.broken[row]:
                continue
            grown = [*self.positions[row][layer], length + step - 1]
            look = weights[row].mean(0)[[position + oracle.padding[row] for position in grown]].tolist()
            stay = tgv_official.decode_step(grown, look, self.rho[row][layer], self.suffix[row][layer], length + step)
            oracle.hide(layer, row, sorted(set(grown) - set(stay)), step + 1)
            self.evictions += len(grown) - len(stay)
            self.positions[row][layer] = stay

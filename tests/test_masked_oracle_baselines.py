"""The baselines, as the naive references have them, over tiny models: same positions, masking's answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.cases import Case, assert_close, case
from tests.models import FAMILIES
from tests.oracle import Oracle, Prefill
from tests.prompts import VIDEO_FAMILIES
from tests.reference import elastic_cache, h2o, look_m, prefix_kv

METHODS = {
    "streaming_llm": ("paper",),
    "h2o": ("paper",),
    "snapkv": ("paper", "literal"),
    "pyramid_kv": ("paper", "official"),
    "ada_kv": ("paper", "official"),
    "prefix_kv": ("online",),
    "tova": ("paper",),
    "keydiff": ("paper",),
    "knorm": ("paper",),
    "expected_attention": ("paper",),
    "observed_attention": ("paper",),
    "vl_cache": ("paper", "official"),
    "cake": ("paper", "official"),
    "mix_kv": ("paper",),
}
NAMED = [(method, variant) for method, variants in METHODS.items() for variant in variants]
WITHOUT_REFERENCE = [
    ("random", "plain"),
    ("random", "protected"),
    ("random_text_first", "plain"),
    ("random_vision_first", "plain"),
    ("mm_shiftkv", "paper"),
    ("mm_shiftkv", "official"),
]
PADDED = ("image", "two_images")


def alone(family: str) -> tuple[str, ...]:
    """The most demanding single prompt of a family."""
    return ("video",) if family in VIDEO_FAMILIES else ("one_token_tail",)


def retention_for(family: str, *rest: str) -> float:
    """Spread the retentions over the families, so that every method meets each of them."""
    return (0.05, 0.1, 0.5)[(FAMILIES.index(family) + sum(map(len, rest))) % 3]


def reference(this: Case, method: str, variant: str, retention: float) -> list:
    """What the naive reference keeps, with the statistics some methods want besides attention."""
    if method != "expected_attention":
        params = {"variant": variant} if len(METHODS.get(method, ())) > 1 or method == "elastic_cache" else {}
        return this.reference(method, retention, **params)
    kept = []
    for row, seen in enumerate(this.prefills):
        extra = {"queries": seen.queries.numpy(), "rotation": mean_rotation(this, seen)}
        kept.append(this.reference(method, retention, **extra)[row])
    return kept


def mean_rotation(this: Case, seen: Prefill, future: int = 512) -> np.ndarray:
    """Mean over the next positions of the matrix that rotates a query, written out pair by pair."""
    speeds = this.model.get_decoder().rotary_emb.inv_freq.double().numpy()
    half = len(speeds)
    matrix = np.zeros((2 * half, 2 * half))
    for position in range(seen.next_position, seen.next_position + future):
        for pair, speed in enumerate(speeds):
            cos, sin = np.cos(position * speed), np.sin(position * speed)
            matrix[pair, pair] += cos
            matrix[pair + half, pair + half] += cos
            matrix[pair, pair + half] -= sin
            matrix[pair + half, pair] += sin
    return matrix / future


def both_prompts(family: str, *rest: str) -> list[tuple[Case, float]]:
    """A padded batch, and one prompt alone at a retention that varies."""
    return [
        (case(family, PADDED, "sdpa"), 0.2),
        (case(family, alone(family), "sdpa"), retention_for(family, *rest)),
    ]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("method", "variant"), NAMED)
def test_a_baseline_is_the_masked_full_cache(family: str, method: str, variant: str) -> None:
    for this, retention in both_prompts(family, method, variant):
        run = this.run(method, retention, variant=variant)
        if method == "knorm":
            assert_shortest(this, run.kept, retention)
        else:
            assert run.kept == reference(this, method, variant, retention), retention
        assert torch.equal(run.logits[0], this.stock[0])
        assert_close(run.logits, this.masked(run.kept))


def assert_shortest(this: Case, kept: list, retention: float) -> None:
    """As short as the reference's; newline tokens have equally long keys, so any of them may stay."""
    for seen, ours, theirs in zip(this.prefills, kept, this.reference("knorm", retention), strict=True):
        for layer, head in np.ndindex(*seen.keys.shape[:2]):
            lengths = seen.keys[layer, head].norm(dim=-1)
            pair = (lengths[rows[layer][head]].sort().values for rows in (ours, theirs))
            torch.testing.assert_close(*pair, rtol=1e-6, atol=0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("method", "variant"), WITHOUT_REFERENCE)
def test_a_drawn_selection_is_the_masked_full_cache(family: str, method: str, variant: str) -> None:
    this = case(family, PADDED, "sdpa")
    run = this.run(method, 0.2, variant=variant)
    assert_close(run.logits, this.masked(run.kept))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("variant", ["paper", "official"])
def test_elastic_cache_merges_what_it_evicts(family: str, variant: str) -> None:
    for this, retention in [(case(family, PADDED, "sdpa"), 0.2), (case(family, alone(family), "sdpa"), 0.5)]:
        run = this.run("elastic_cache", retention, variant=variant)
        assert run.kept == reference(this, "elastic_cache", variant, retention)
        merged = merged_prompt(this, retention, elastic_cache.merged, variant=variant)
        assert_close(run.logits, this.masked(run.kept, merged=merged))
        assert (this.masked(run.kept) - run.logits)[1:].abs().max() > 1e-2


@pytest.mark.parametrize("family", FAMILIES)
def test_look_m_merges_what_it_evicts(family: str) -> None:
    for this, retention in [(case(family, PADDED, "sdpa"), 0.2), (case(family, alone(family), "sdpa"), 0.5)]:
        run = this.run("look_m", retention)
        assert run.kept == this.reference("look_m", retention)
        assert_close(run.logits, this.masked(run.kept, merged=merged_prompt(this, retention, look_m.merged)))
        assert (this.masked(run.kept) - run.logits)[1:].abs().max() > 1e-2


def merged_prompt(
    this: Case, retention: float, merge: Callable, **params: str
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Per layer the merged keys and values of the whole batch, in padded slots."""
    width = this.inputs["input_ids"].shape[1]
    rows = []
    for seen, vision in zip(this.prefills, this.vision, strict=True):
        arrays = [part.numpy() for part in (seen.attention, seen.keys, seen.values)]
        sides = merge(*arrays, vision, retention, **params)
        pad = width - len(vision)
        rows.append([np.pad(side, ((0, 0), (0, 0), (pad, 0), (0, 0))) for side in sides])
    keys, values = (torch.from_numpy(np.stack(side, axis=1)) for side in zip(*rows, strict=True))
    return list(zip(keys, values, strict=True))


class H2ODecode:
    """H2O's decode rule acting on the oracle's cache: one entry leaves every KV head at every step."""

    def __init__(self, this: Case, kept: list) -> None:
        self.lengths = [len(vision) for vision in this.vision]
        self.positions = [[[list(row) for row in sets] for sets in layers] for layers in kept]
        self.sums = []
        for seen, layers in zip(this.prefills, self.positions, strict=True):
            sums = h2o.received(seen.attention.numpy(), seen.keys.shape[1])
            self.sums.append([[sums[i, g, row] for g, row in enumerate(sets)] for i, sets in enumerate(layers)])

    def __call__(self, oracle: Oracle, layer: int, step: int, weights: torch.Tensor) -> None:
        """Add the new row to the sums, choose again, hide what leaves."""
        for row, length in enumerate(self.lengths):
            heads = self.positions[row][layer]
            looks = h2o.mean_of_group(weights[row].double().numpy(), len(heads))
            for head, positions in enumerate(heads):
                grown = [*positions, length + step - 1]
                look = looks[head][[position + oracle.padding[row] for position in grown]]
                halves = h2o.halves(len(positions))
                stay, sums = h2o.decode_step(grown, self.sums[row][layer][head], look, *halves)
                oracle.hide(layer, row, sorted(set(grown) - set(stay)), step + 1, head)
                heads[head], self.sums[row][layer][head] = stay, sums


@pytest.mark.parametrize("family", FAMILIES)
def test_h2o_evicts_while_decoding(family: str) -> None:
    for this, retention in both_prompts(family):
        run = this.run("h2o", retention, decode="evict")
        assert_close(run.logits, this.masked(run.kept, on_step=H2ODecode(this, run.kept)))


class FixedSlot:
    """The slot ElasticCache and PrefixKV delete whenever a layer has grown past its share."""

    def __init__(self, this: Case, kept: list, shares: list[list[float]]) -> None:
        self.lengths = [len(vision) for vision in this.vision]
        self.positions = [[list(sets[0]) for sets in layers] for layers in kept]
        self.slots = [[self.slot(len(row)) for row in layers] for layers in self.positions]
        self.shares, self.evictions = shares, 0

    @staticmethod
    def slot(held: int) -> int:
        """25 slots from the end of what the prefill left, or its middle where that is no slot."""
        return held - 25 if held - 25 >= 1 else held // 2

    def __call__(self, oracle: Oracle, layer: int, step: int, weights: torch.Tensor) -> None:
        """Delete the slot once the layer holds one entry too many."""
        for row, length in enumerate(self.lengths):
            grown = self.positions[row][layer]
            grown.append(length + step - 1)
            if len(grown) - (length + step) * self.shares[row][layer] >= 1 - 1e-9:
                oracle.hide(layer, row, [grown.pop(self.slots[row][layer])], step + 1)
                self.evictions += 1


@pytest.mark.parametrize("family", FAMILIES)
def test_elastic_cache_evicts_a_fixed_slot_while_decoding(family: str) -> None:
    this, retention = case(family, PADDED, "sdpa"), 0.5
    run = this.run("elastic_cache", retention, decode="evict")
    rule = FixedSlot(this, run.kept, [[retention] * len(layers) for layers in run.kept])
    merged = merged_prompt(this, retention, elastic_cache.merged, variant="paper")
    assert_close(run.logits, this.masked(run.kept, merged=merged, on_step=rule))
    assert rule.evictions > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_prefix_kv_evicts_a_fixed_slot_while_decoding(family: str) -> None:
    this = case(family, PADDED, "sdpa")
    run = this.run("prefix_kv", 0.3, decode="evict")
    rule = FixedSlot(this, run.kept, prefix_shares(this, 0.3))
    assert_close(run.logits, this.masked(run.kept, on_step=rule))
    assert rule.evictions > 0


def prefix_shares(this: Case, retention: float) -> list[list[float]]:
    """Per sample and layer the share of all tokens that may stay, by what the search forgets."""
    result = []
    for seen in this.prefills:
        importance = seen.attention.mean(1).sum(1).numpy()
        evict = (1 - retention) * importance.size
        counts = prefix_kv.rescaled(prefix_kv.search(importance, evict, 5)[1], evict)
        result.append([1 - count / importance.shape[1] for count in counts])
    return result

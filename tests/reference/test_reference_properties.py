"""On random prompts of any shape the references keep to the budgets, and at a retention of one everything."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.reference import REFERENCES, elastic_cache, fastv
from tests.reference.budgets import entries_in_total
from tests.reference.scores import attention_of

PER_HEAD = ("h2o", "snapkv", "pyramid_kv", "ada_kv", "mm_shiftkv", "keydiff", "knorm", "expected_attention")
PER_HEAD += ("observed_attention", "look_m", "vl_cache", "cake", "mix_kv")
OVER_BUDGET = (
    "elastic_cache",
    "prefix_kv",
)  # may keep their five protected tokens, or a few more than asked for
LAYERS, HEADS, KV_HEADS, SIZE = 3, 4, 2, 4


def draw(seed: int) -> tuple[tuple, dict, int]:
    """A prompt, its extra statistics for the methods that want them, and its length."""
    dice, numbers = random.Random(seed), np.random.default_rng(seed)
    length = dice.choice([1, 2, 5, 9, 17, 40])
    shape = (LAYERS, HEADS, length, SIZE)
    queries, keys, values = (
        numbers.normal(size=shape),
        *numbers.normal(size=(2, LAYERS, KV_HEADS, length, SIZE)),
    )
    vision = [dice.random() < dice.choice([0, 0.5, 0.9]) for _ in range(length)]
    proxies = numbers.normal(size=(LAYERS, HEADS, 8, SIZE)) * 3
    extra = {"expected_attention": {"queries": queries}, "mm_shiftkv": {"proxies": proxies, "groups": 4}}
    return (attention_of(queries * 2, keys), keys, values, vision), extra, length


@pytest.mark.parametrize("method", sorted(set(REFERENCES) - {"fastv"}))
@pytest.mark.parametrize("seed", range(25))
def test_kept_positions_fill_the_budget(method: str, seed: int) -> None:
    prompt, extra, length = draw(seed)
    params = extra.get(method, {})
    for retention in (0.05, 0.2, 0.5, 1.0):
        total = entries_in_total(length, LAYERS, 1.0 if method == "full" else retention)
        if total < LAYERS:
            continue
        kept = REFERENCES[method](*prompt, retention, **params)
        assert all(len(sets) == (KV_HEADS if method in PER_HEAD else 1) for sets in kept)
        assert all(row == sorted(set(row)) and set(row) <= set(range(length)) for sets in kept for row in sets)
        assert all(row for sets in kept for row in sets)
        count = sum(len(row) for sets in kept for row in sets)
        full = total * len(kept[0])
        assert count == full or (method in OVER_BUDGET and full <= count <= full + 7 * LAYERS)
        assert retention < 1 or count == length * LAYERS * len(kept[0])


@pytest.mark.parametrize("seed", range(25))
def test_fastv_keeps_whole_layers_and_text_and_misses_the_budget_by_half_a_token_a_layer(seed: int) -> None:
    prompt, _, length = draw(seed)
    text = {position for position in range(length) if not prompt[3][position]}
    for retention in (0.4, 0.6, 0.8, 1.0):
        try:
            first, *later = fastv.kept(*prompt, retention, k=1)
        except fastv.TooSmall:
            # the share kept when nothing but text, and the last token, is left
            least = length + (LAYERS - 1) * len(text | {length - 1})
            assert retention * length * LAYERS < least
            continue
        assert first == [list(range(length))]
        assert later == [later[0]] * (LAYERS - 1)
        assert text | {length - 1} <= set(later[0][0])
        assert abs(length + (LAYERS - 1) * len(later[0][0]) - retention * length * LAYERS) <= (LAYERS - 1) / 2 + 1e-9


@pytest.mark.parametrize("seed", range(25))
def test_official_variants_do_not_crash_where_the_released_code_does_not(seed: int) -> None:
    prompt, _, length = draw(seed)
    if length == 1:
        return  # half of one token is no budget
    for method, variant in (("tgv_kv", "official"), ("snapkv", "literal"), ("pyramid_kv", "official")):
        assert REFERENCES[method](*prompt, 0.5, variant=variant)
    try:
        plans = elastic_cache.plans(prompt[0], 0.5, variant="official")
    except elastic_cache.OfficialBroke:
        return
    assert all(len(plan.thrown) == len(plan.merge_into) for plan in plans)


@pytest.mark.parametrize("seed", range(25))
def test_protected_tgv_kv_keeps_its_ends_inside_the_budget(seed: int) -> None:
    prompt, _, length = draw(seed)
    if entries_in_total(length, LAYERS, 0.5) < LAYERS:
        return
    kept = REFERENCES["tgv_kv"](*prompt, 0.5, variant="protected")
    assert sum(len(sets[0]) for sets in kept) == entries_in_total(length, LAYERS, 0.5)
    assert all(length - 1 in sets[0] for sets in kept)
    assert all(set(range(min(4, len(sets[0]) - 1))) <= set(sets[0]) for sets in kept)

"""The reference's water-filling is the only right one, and the engine's is the same."""

from __future__ import annotations

import random

import pytest

from kv_caches.budgets import water_fill as engine_water_fill
from tests.reference.budgets import real_water_fill, usable_shares, water_fill


def draw(seed: int) -> tuple[list[float], int, int]:
    """Shares from even to extremely uneven, some of them zero, with a total and a cap that bind."""
    dice = random.Random(seed)
    layers = dice.randint(1, 12)
    shares = [dice.random() ** dice.choice([0, 1, 8, 30]) * dice.choice([0, 1, 1, 1]) for _ in range(layers)]
    cap = dice.randint(1, 60)
    return shares, dice.randint(layers, max(layers, layers * cap)), cap


@pytest.mark.parametrize("seed", range(300))
def test_budgets_reach_the_total_within_their_bounds(seed: int) -> None:
    shares, total, cap = draw(seed)
    budgets = water_fill(shares, total, cap)
    assert sum(budgets) == min(total, cap * len(shares))
    assert all(1 <= budget <= cap for budget in budgets)
    assert engine_water_fill(shares, total, cap) == budgets


@pytest.mark.parametrize("seed", range(300))
def test_between_the_bounds_budgets_are_proportional(seed: int) -> None:
    shares, total, cap = draw(seed)
    shares = usable_shares(shares)
    real = real_water_fill(shares, min(total, cap * len(shares)), cap, 1)
    levels = [x / share for x, share in zip(real, shares, strict=True) if share > 0 and 1 + 1e-9 < x < cap - 1e-9]
    if levels:
        assert max(levels) == pytest.approx(min(levels))
        pairs = [(x, level * share) for x, share in zip(real, shares, strict=True) for level in levels[:1] if share]
        assert all(x == pytest.approx(min(cap, max(1, wish))) for x, wish in pairs)


def test_no_budget_for_every_layer_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot give 3 sets"):
        water_fill([1, 1, 1], 2, 10)

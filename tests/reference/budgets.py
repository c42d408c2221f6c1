"""Budget rules of the project, written out as plainly as they can be said."""

from __future__ import annotations

import math
from collections.abc import Sequence


def entries_per_layer(length: int, retention: float) -> int:
    """B: the tokens a layer keeps when all layers are treated alike."""
    return max(1, math.floor(retention * length + 1e-9))


def entries_in_total(length: int, layers: int, retention: float) -> int:
    """B_tot: what all layers may keep together."""
    return math.floor(retention * length * layers + 1e-9)


def observation_window(length: int, retention: float, window: int) -> int:
    """The window that leaves at least half of the budget to the tokens before it."""
    return min(window, max(1, entries_per_layer(length, retention) // 2))


def even_budgets(length: int, layers: int, retention: float, spread: bool = True) -> list[int]:
    """Budgets of a method that treats all layers alike.

    Args:
        length: Prompt tokens.
        layers: Decoder layers.
        retention: Share kept.
        spread: Hand the remainder of B_tot to the lower layers, so that the total is reached.
    """
    if not spread:
        return [entries_per_layer(length, retention)] * layers
    return water_fill([1.0] * layers, entries_in_total(length, layers, retention), length)


def water_fill(shares: Sequence[float], total: int, cap: int, floor: int = 1) -> list[int]:
    """Whole budgets in proportion to the shares, each between floor and cap, adding up to the total.

    Raises:
        ValueError: If the total cannot give every layer its floor.
    """
    if total < floor * len(shares):
        raise ValueError(f"a budget of {total} cannot give {len(shares)} sets {floor} entries each")
    if total >= cap * len(shares):
        return [cap] * len(shares)
    return round_to_total(real_water_fill(usable_shares(shares), total, cap, floor), total)


def usable_shares(shares: Sequence[float]) -> list[float]:
    """The shares themselves, or equal ones where they say nothing."""
    mass = sum(shares)
    if math.isnan(mass) or mass <= 0:
        return [1.0 / len(shares)] * len(shares)
    return [share / mass for share in shares]


def real_water_fill(shares: Sequence[float], total: float, cap: float, floor: float) -> list[float]:
    """clamp(t * share, floor, cap) for the only level t that gives the total; settles one side at a time."""
    settled: dict[int, float] = {}
    while len(settled) < len(shares):
        free = [layer for layer in range(len(shares)) if layer not in settled]
        left = total - sum(settled.values())
        mass = sum(shares[layer] for layer in free)
        wish = {layer: left * shares[layer] / mass if mass > 0 else left / len(free) for layer in free}
        above = [layer for layer in free if wish[layer] > cap]
        below = [layer for layer in free if wish[layer] < floor]
        if not above and not below:
            settled |= wish
            break
        excess = sum(wish[layer] - cap for layer in above)
        lack = sum(floor - wish[layer] for layer in below)
        settled |= dict.fromkeys(above, cap) if excess >= lack else dict.fromkeys(below, floor)
    return [settled[layer] for layer in range(len(shares))]


def round_to_total(real: Sequence[float], total: int) -> list[int]:
    """Round down, then one more for the largest fractions, lower layer first among equals."""
    whole = [math.floor(value + 1e-9) for value in real]
    fractions = [value - base for value, base in zip(real, whole, strict=True)]
    order = sorted(range(len(real)), key=lambda layer: (-round(fractions[layer], 9), layer))
    for layer in order[: total - sum(whole)]:
        whole[layer] += 1
    return whole

"""TGV-KV as released, defects included: one assumed block of vision, text protected by an added 100."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.reference.scores import Array, best, with_ends
from tests.reference.segments import official_block


def shares(means: Array, vision: Sequence[bool]) -> list[float]:
    """Share of the vision mass per layer, counted over the rows after the first block only."""
    first, after = official_block(vision)
    mass = [float(mean[after:, first:after].sum()) for mean in means]
    return [value / sum(mass) if sum(mass) > 0 else math.nan for value in mass]


def forget_shares(means: Array, vision: Sequence[bool], retention: float) -> list[float]:
    """rho_l: the share of the prompt each layer forgets; negative where its budget exceeds the prompt."""
    layers = means.shape[0]
    return [1 - layers * retention * share for share in shares(means, vision)]


def breaks(vision: Sequence[bool]) -> bool:
    """No image in the prompt, or nothing after it: the released code goes on with the full cache."""
    return not any(vision) or official_block(vision)[1] >= len(vision)


def forget_counts(means: Array, vision: Sequence[bool], retention: float) -> list[int]:
    """f_l: entries each layer forgets."""
    length = means.shape[-1]
    return [max(0, round(rho * length)) for rho in forget_shares(means, vision, retention)]


def scores(mean: Array, vision: Sequence[bool]) -> Array:
    """Text by the attention it receives from all rows plus 100, the block by weighted later text."""
    first, after = official_block(vision)
    rows = range(after, len(vision))
    result = mean.sum(axis=0) + 100.0
    weights = [sum(mean[b, a] for b in rows if b >= a) / (len(vision) - a) for a in rows]
    for key in range(first, after):
        result[key] = sum(weight * mean[row, key] for weight, row in zip(weights, rows, strict=True))
    return result


def kept(means: Array, vision: Sequence[bool], retention: float, start: int = 4, last: int = 1) -> list[list[int]]:
    """First `start` and last `last` always, the rest without the f_l lowest scores."""
    length = means.shape[-1]
    if breaks(vision):
        return [list(range(length)) for _ in means]
    result = []
    for mean, forget in zip(means, forget_counts(means, vision, retention), strict=True):
        middle = range(start, length - last)
        chosen = best(scores(mean, vision), len(middle) - forget, middle)
        result.append(with_ends(chosen, start, last, length))
    return result


def suffix(positions: Sequence[int], vision: Sequence[bool]) -> int:
    """pi_l: how many cache slots from the end the released code protects while decoding."""
    return max(1, sum(position >= official_block(vision)[1] for position in positions))


def decode_step(
    positions: Sequence[int],
    row: Sequence[float],
    rho: float,
    suffix: int,
    logical_length: int,
    start: int = 4,
) -> list[int]:
    """What one decode step leaves in a layer.

    Args:
        positions: True positions in cache order, the new token last.
        row: Head-mean attention of the new token over these slots.
        rho: Forget share of the layer.
        suffix: Protected slots at the end.
        logical_length: Prompt tokens plus tokens fed so far, this one included.
        start: Protected slots at the beginning.
    """
    surplus = math.trunc(len(positions) - logical_length * (1 - rho))
    evictable = range(start, len(positions) - suffix)
    if surplus < 1 or not len(evictable):
        return list(positions)
    weakest = min(evictable, key=lambda slot: (row[slot], slot))
    return [position for slot, position in enumerate(positions) if slot != weakest]

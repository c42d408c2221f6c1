"""FastV: the first layers keep everything, the others all text and the vision tokens that the last token looks at."""

from __future__ import annotations

from collections.abc import Sequence

from tests.reference.scores import Array, Kept, best


class TooSmall(Exception):
    """Not even pruning every vision token reaches the share."""


def kept(
    attention: Array,
    keys: Array | None,
    values: Array | None,
    vision: Sequence[bool],
    retention: float,
    k: int = 3,
    pruned_share: float | None = None,
) -> Kept:
    """One set per layer; the share of vision tokens that is pruned follows from the retention unless it is given.

    Raises:
        TooSmall: The share pruned would be above one; where the last token is vision, above all but that token.
    """
    layers, length = attention.shape[0], attention.shape[-1]
    images = [position for position in range(length) if vision[position]]
    if retention == 1 and pruned_share is None:
        return [[list(range(length))]] * layers
    if not images:
        raise TooSmall
    pruned = pruned_share
    if pruned is None:
        pruned = (1 - retention) * length * layers / ((layers - k) * len(images))
    if pruned > (len(images) - vision[-1]) / len(images) + 1e-9:
        raise TooSmall
    left = survivors(attention[k - 1], images, round(round((1 - pruned) * len(images), 6)), length)
    return [[list(range(length))]] * k + [[left]] * (layers - k)


def survivors(attention: Array, images: Sequence[int], count: int, length: int) -> list[int]:
    """Text, the last token, and the `count` vision tokens (the last token among them) that it looks at most."""
    looks = attention[:, -1].mean(axis=0)
    candidates = [position for position in images if position < length - 1]
    count -= len(images) - len(candidates)
    text = set(range(length)) - set(candidates)
    return sorted(text | set(best(looks, count, candidates)))

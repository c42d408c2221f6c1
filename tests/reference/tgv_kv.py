"""TGV-KV: text-grounded layer budgets, text-weighted ranking of vision tokens, text before vision.

Three variants: `paper` follows the formulas, `protected` adds four sinks and the last token inside the
budget, `official` follows the released code, defects included (see `tgv_official`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.reference import tgv_official
from tests.reference.budgets import entries_in_total, water_fill
from tests.reference.scores import Array, Kept, best, with_ends
from tests.reference.segments import text_positions, vision_positions


def kept(
    attention: Array,
    keys: Array | None,
    values: Array | None,
    vision: Sequence[bool],
    retention: float,
    variant: str = "paper",
    start: int = 4,
    last: int = 1,
) -> Kept:
    """Positions each layer keeps; one set for all heads of a layer."""
    means = attention.mean(axis=1)  # (L, N, N)
    if variant == "official":
        return [[row] for row in tgv_official.kept(means, vision, retention, start, last)]
    ends = (start, last) if variant == "protected" else (0, 0)
    grounded = any(mass > 0 for mass in vision_mass(means, vision))
    layers = zip(means, budgets(means, vision, retention), strict=True)
    return [[layer_kept(mean, vision, budget, ends, grounded)] for mean, budget in layers]


def vision_mass(means: Array, vision: Sequence[bool]) -> list[float]:
    """m_l: attention that text rows give to vision keys, per layer."""
    text, seen = text_positions(vision), vision_positions(vision)
    return [float(sum(mean[i, j] for i in text for j in seen)) for mean in means]


def budgets(means: Array, vision: Sequence[bool], retention: float) -> list[int]:
    """TVB: the total split by the vision mass of the layers; even where no text looks at vision."""
    layers, length = means.shape[0], means.shape[-1]
    return water_fill(vision_mass(means, vision), entries_in_total(length, layers, retention), length)


def layer_scores(mean: Array, vision: Sequence[bool], grounded: bool = True) -> Array:
    """TWR for the vision tokens and later-text attention for the text tokens of one layer."""
    text, scores = text_positions(vision), np.zeros(len(vision))
    dominance = {}
    for a, key in enumerate(text):
        received = [mean[row, key] for row in text[a:]]
        scores[key] = sum(received)
        dominance[key] = sum(received) / len(received)
    weight = sum(dominance.values())
    for key in vision_positions(vision):
        by_text = sum(dominance[row] / weight * mean[row, key] for row in text) if text else 0.0
        scores[key] = by_text if grounded else mean[-1, key]
    return scores


def layer_kept(mean: Array, vision: Sequence[bool], budget: int, ends: tuple[int, int], grounded: bool) -> list[int]:
    """TPR: protected ends, then text, then vision with what is left."""
    length, (start, last) = len(vision), ends
    scores = layer_scores(mean, vision, grounded)
    if budget < start + last:
        return with_ends([], budget - 1, 1, length)
    safe = set(with_ends([], start, last, length))
    text = [position for position in text_positions(vision) if position not in safe]
    seen = [position for position in vision_positions(vision) if position not in safe]
    room = budget - len(safe)
    if room > len(text):
        return sorted([*safe, *text, *best(scores, room - len(text), seen)])
    return sorted([*safe, *best(scores, room, text)])

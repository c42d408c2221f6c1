"""MM-ShiftKV: widened query proxies vote, in groups, for the keys that cover most of their attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.reference.budgets import even_budgets
from tests.reference.scores import Array, Kept, best, mean_of_group, softmax


def kept(
    attention: Array,
    keys: Array,
    values: Array | None,
    vision: Sequence[bool],
    retention: float,
    proxies: Array | None = None,
    groups: int = 32,
    coverage: float = 0.95,
    spread: bool = True,
) -> Kept:
    """The last token and the keys with most votes; proxies (L, H, P, d) are rotated queries."""
    layers, length = attention.shape[0], attention.shape[-1]
    result = []
    for layer, budget in enumerate(even_budgets(length, layers, retention, spread)):
        scores = layer_scores(attention[layer], keys[layer], proxies[layer], groups, coverage)
        result.append([[*best(row, budget - 1), length - 1] for row in scores])
    return result


def layer_scores(attention: Array, keys: Array, proxies: Array, groups: int, coverage: float) -> Array:
    """Votes plus the last query's attention, per KV head, over all keys but the last: (G, N - 1)."""
    kv_heads = keys.shape[0]
    anchor = mean_of_group(attention[:, -1, :-1], kv_heads)  # (G, N - 1)
    looks = proxy_attention(keys, proxies)  # (G, P, N - 1)
    return np.stack([sum(votes(looks[g], anchor[g], groups, coverage)) + anchor[g] for g in range(kv_heads)])


def proxy_attention(keys: Array, proxies: Array) -> Array:
    """Attention of the proxies over the prompt, averaged over the query heads of each KV head."""
    group = proxies.shape[0] // keys.shape[0]
    logits = proxies @ np.repeat(keys, group, axis=0).swapaxes(-1, -2) / np.sqrt(keys.shape[-1])
    return mean_of_group(softmax(logits), keys.shape[0])[..., :-1]


def votes(looks: Array, anchor: Array, groups: int, coverage: float) -> list[Array]:
    """One vote of every group for each of its leading keys; the key that crosses the coverage gets none."""
    size = len(looks) // groups
    ballots = []
    for group in range(groups):
        mean = (looks[group * size : (group + 1) * size].sum(axis=0) + anchor) / (1 + size)
        ballot, running = np.zeros(len(mean)), 0.0
        for key in sorted(range(len(mean)), key=lambda position: (-mean[position], position)):
            running += mean[key]
            if running > coverage * mean.sum():
                break
            ballot[key] = 1.0
        ballots.append(ballot)
    return ballots

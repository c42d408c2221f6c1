"""Prefill statistics made from the worked cases, without a model."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from kv_caches.attention import LayerView
from kv_caches.prompt import Prompt
from kv_caches.statistics import PrefillStats

CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "method_cases.json").read_text())


class GivenAttention(LayerView):
    """A layer whose attention matrix (H, N, N) is given instead of queries and keys."""

    def __init__(self, attention: torch.Tensor, prompt: Prompt):
        heads, n, _ = attention.shape
        empty = torch.zeros(heads, n, 1)
        super().__init__(empty, empty, empty, prompt, 1.0)
        self._attention = attention

    def rows(self, index):
        return self._attention[:, index, : int(index[-1]) + 1]


def case_list(*methods):
    return [case for case in CASES["cases"] if case["method"] in methods]


def fixture_stats(name, needs):
    """PrefillStats of input S1 (attention given) or S2 (queries and keys given)."""
    data = CASES["inputs"][name]
    prompt = Prompt(torch.tensor(data["vision_mask"]).bool())
    stats = PrefillStats(prompt, data["layers"])
    for layer in range(data["layers"]):
        if "attention" in data:
            view = GivenAttention(torch.tensor(data["attention"][layer]), prompt)
        else:
            q, k, v = (torch.tensor(data[key][layer]) for key in "QKV")
            view = LayerView(q, k, v, prompt, q.shape[-1] ** -0.5)
        stats.collect(layer, view, needs)
    return stats


def kept_lists(selection):
    """[layer][position] when one set per layer, else [layer][set][position]."""
    kept = [[index.tolist() for index in sets] for sets in selection.kept]
    return [sets[0] for sets in kept] if all(len(sets) == 1 for sets in kept) else kept

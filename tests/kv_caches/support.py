"""Prefill statistics made from the worked cases, without a model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch

from kv_caches import registry
from kv_caches.attention import LayerView
from kv_caches.cache import EvictingLayer
from kv_caches.methods.prefix_kv_offline import OfflinePrefixKV, Profiled
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

    def rows(self, index, groups=slice(None)):
        return self._attention[groups, index, : int(index[-1]) + 1]


def case_list(*methods):
    return [case for case in CASES["cases"] if case["method"] in methods]


def by_id(case):
    return case["id"]


class Given:
    """The same budget, stated by a case, in every layer."""

    def __init__(self, budget):
        self.budget = budget

    def allocate(self, stats, retention):
        return [self.budget] * stats.n_layers


def select(method, stats, budget, **parts):
    """What a method keeps at a given budget, with some of its parts replaced."""
    return replace(method, budget=Given(budget), **parts).select(stats, 0.5)


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


class FakeAttention(torch.nn.Module):
    """Of an attention module, what statistics that need one read."""

    def __init__(self, layer, hidden_size, heads, head_dim):
        super().__init__()
        self.layer_idx = layer
        self.q_proj = torch.nn.Linear(hidden_size, heads * head_dim, bias=False)


def random_view(prompt, layer=0, heads=4, kv_heads=2, head_dim=8, hidden_size=16, seed=0):
    """A layer with random queries, keys, values, attention input and default rotary positions."""
    generator, n = torch.Generator().manual_seed(seed * 1000 + layer), prompt.length
    q, k, v = (torch.randn(h, n, head_dim, generator=generator) for h in (heads, kv_heads, kv_heads))
    inv_freq = 10000.0 ** -(torch.arange(0, head_dim, 2) / head_dim)
    angle = torch.arange(n)[:, None] * inv_freq.repeat(2)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = FakeAttention(layer, hidden_size, heads, head_dim)
    hidden = torch.randn(n, hidden_size, generator=generator)
    rotary = (angle.cos(), angle.sin())
    return LayerView(2 * q, k, v, prompt, head_dim**-0.5, None, module, hidden, rotary, inv_freq)


def random_stats(prompt, needs, layers=3, **sizes):
    """PrefillStats of random layers."""
    stats = PrefillStats(prompt, layers)
    for layer in range(layers):
        stats.collect(layer, random_view(prompt, layer, **sizes), needs)
    return stats


def prompt_of(tokens, seed=5):
    """A prompt from a string of T and V."""
    return Prompt(torch.tensor([token == "V" for token in tokens]), seed)


def every_variant():
    """(name, variant) of every registered method."""
    return [(name, variant) for name in registry.method_names() for variant in registry.variants(name)]


def at_any_share():
    """Those that can keep any share of a prompt; what prunes the prefill keeps its first layers and its text whole."""
    return [pair for pair in every_variant() if not build(*pair).prunes_prefill]


def evicts_at_one(name, variant):
    """Whether the variant's own budgets evict even at a retention of 1."""
    return variant == "offline" or (name in ("tgv_kv", "vl_cache") and variant.startswith("official"))


def build(name, variant):
    """The method, with a made-up profile where it needs one."""
    method = registry.build(name, variant)
    if isinstance(method, OfflinePrefixKV):
        return replace(method, budget=Profiled((0.2, 0.5, 0.8)))
    return method


def tokens_per_update(monkeypatch):
    """A list that fills with the number of tokens of every later cache update, layer by layer."""
    lengths, update = [], EvictingLayer.update

    def counted(layer, keys, values, *args, **kwargs):
        lengths.append(keys.shape[2])
        return update(layer, keys, values, *args, **kwargs)

    monkeypatch.setattr(EvictingLayer, "update", counted)
    return lengths

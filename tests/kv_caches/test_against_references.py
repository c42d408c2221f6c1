"""Every method keeps what its naive, independent reference keeps, on fifty random prompts of every shape."""

import random

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from kv_caches import registry
from kv_caches.attention import LayerView
from kv_caches.methods.expected_attention import ExpectedAttention
from kv_caches.methods.mm_shiftkv import ProxyVotes
from kv_caches.prompt import Prompt
from kv_caches.retention import Protected
from kv_caches.statistics import PrefillStats
from tests.reference import REFERENCES, elastic_cache
from tests.reference.budgets import even_budgets
from tests.reference.scores import attention_of

from .support import build

LAYERS, SEEDS = 3, range(50)
CASES = [
    ("streaming_llm", "paper", {}),
    ("h2o", "paper", {}),
    ("snapkv", "paper", {}),
    ("snapkv", "literal", {"variant": "literal"}),
    ("elastic_cache", "paper", {}),
    ("elastic_cache", "official", {"variant": "official"}),
    ("prefix_kv", "online", {}),
    ("prefix_kv", "offline", {"variant": "offline", "layer_evict_share": [0.2, 0.5, 0.8]}),
    ("pyramid_kv", "paper", {}),
    ("pyramid_kv", "official", {"variant": "official"}),
    ("ada_kv", "paper", {}),
    ("ada_kv", "official", {"variant": "official"}),
    ("tova", "paper", {}),
    ("keydiff", "paper", {}),
    ("knorm", "paper", {}),
    ("observed_attention", "paper", {}),
    ("look_m", "paper", {}),
    ("vl_cache", "paper", {}),
    ("vl_cache", "official", {"variant": "official"}),
    ("cake", "paper", {}),
    ("cake", "official", {"variant": "official"}),
    ("mix_kv", "paper", {}),
    ("tgv_kv", "paper", {}),
    ("tgv_kv", "protected", {"variant": "protected"}),
]


class Draw:
    """A random prompt, shorter or longer than windows, and random layers, with grouped heads or without."""

    def __init__(self, seed, layers=LAYERS):
        dice, rng = random.Random(seed), np.random.default_rng(seed)
        self.length = dice.choice([9, 14, 25, 40, 70, 130])
        self.retention = dice.choice([r for r in (0.05, 0.1, 0.2, 0.5, 0.8) if r * self.length >= 1])
        heads, kv_heads = dice.choice([(4, 2), (4, 4), (6, 2), (3, 1)])
        self.queries = rng.normal(size=(layers, heads, self.length, 8)) * dice.choice([1, 3])
        self.keys, self.values = rng.normal(size=(2, layers, kv_heads, self.length, 8))
        start, stop = sorted(rng.integers(0, self.length + 1, 2))
        self.vision = [bool(start <= i < stop and i % 7) for i in range(self.length)]
        self.attention = attention_of(self.queries, self.keys)
        self.rng = rng

    def views(self, **extra):
        """Our layers, float32."""
        prompt = Prompt(torch.tensor(self.vision))
        arrays = zip(self.queries, self.keys, self.values)
        layers = [[torch.from_numpy(x).float() for x in layer] for layer in arrays]
        return [LayerView(*layer, prompt, 8**-0.5, **extra) for layer in layers]

    def stats(self, needs):
        stats = PrefillStats(Prompt(torch.tensor(self.vision)), len(self.keys))
        for index, view in enumerate(self.views()):
            stats.collect(index, view, needs)
        return stats

    def reference(self, name, **params):
        return REFERENCES[name](self.attention, self.keys, self.values, self.vision, self.retention, **params)


def as_lists(selection):
    return [[kept.tolist() for kept in sets] for sets in selection.kept]


def same(ours, theirs):
    """Equal; a layer that keeps everything may state it once for all heads."""
    return all(a == b or (len(a) == 1 and all(s == a[0] for s in b)) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(("name", "variant", "params"), CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_keeps_what_the_reference_keeps(name, variant, params):
    method = build(name, variant)
    broke = 0
    for seed in SEEDS:
        draw = Draw(seed)
        selection = method.select(draw.stats(method.needs), draw.retention)
        try:
            theirs = draw.reference(name, **params)
        except elastic_cache.OfficialBroke:
            assert selection.official_broke
            broke += 1
            continue
        assert not selection.official_broke
        assert same(as_lists(selection), theirs), (seed, draw.length, draw.retention)
    assert broke < len(SEEDS) / 2


@pytest.mark.parametrize("variant", ["paper", "official"])
def test_merges_what_the_reference_merges(variant):
    method = registry.build("elastic_cache", variant)
    for seed in SEEDS:
        draw = Draw(seed)
        selection = method.select(draw.stats(method.needs), draw.retention)
        if selection.official_broke:
            continue
        plans = elastic_cache.plans(draw.attention, draw.retention, variant=variant)
        for plan, (kept,) in zip(plans, selection.kept):
            leaving, into, _ = method.merge.merge(kept, torch.empty(0), Prompt(torch.tensor(draw.vision)))
            assert (leaving.tolist(), into.tolist()) == (plan.thrown, plan.merge_into)


def test_mm_shiftkv_with_the_same_proxies():
    statistic = ProxyVotes(proxies=16, groups=4)
    for seed in SEEDS:
        draw = Draw(seed)
        proxies = draw.rng.normal(size=(*draw.queries.shape[:2], 16, 8)) * 2
        theirs = draw.reference("mm_shiftkv", proxies=proxies, groups=4)
        budgets = even_budgets(draw.length, LAYERS, draw.retention)
        for layer, view in enumerate(draw.views()):
            ballot = statistic.vote(torch.from_numpy(proxies[layer]).float(), view)
            scores = F.pad(ballot.votes + ballot.anchor, (0, 1))
            ours = Protected(last=1).keep(scores, budgets[layer], view.prompt)
            assert [kept.tolist() for kept in ours] == theirs[layer], seed


def test_expected_attention_with_a_rotation():
    statistic = ExpectedAttention()
    for seed in SEEDS:
        draw = Draw(seed)
        inv_freq = torch.tensor([1.0, 0.3, 0.1, 0.03])
        angle = torch.arange(draw.length)[:, None] * inv_freq.repeat(2)
        later = torch.arange(draw.length, draw.length + 512).double()[:, None] * inv_freq.double()
        cos, sin = later.cos().mean(0).diag().numpy(), later.sin().mean(0).diag().numpy()
        turn = np.block([[cos, -sin], [sin, cos]])
        views = draw.views(rotary=(angle.cos(), angle.sin()), inv_freq=inv_freq)
        full_cos, full_sin = angle.cos().numpy(), angle.sin().numpy()
        half = np.concatenate([-draw.queries[..., 4:], draw.queries[..., :4]], axis=-1)
        before = draw.queries * full_cos - half * full_sin
        theirs = draw.reference("expected_attention", queries=before, rotation=turn)
        budgets = even_budgets(draw.length, LAYERS, draw.retention)
        for layer, view in enumerate(views):
            ours = Protected().keep(statistic.collect(view), budgets[layer], view.prompt)
            assert [kept.tolist() for kept in ours] == theirs[layer], seed

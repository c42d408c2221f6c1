"""Queries that methods imagine are the model's own: same projection, same norm, same rotation, later positions."""

import pytest
import torch

from kv_caches import KVConfig, attach, rope
from kv_caches.methods.expected_attention import ExpectedAttention
from kv_caches.methods.mm_shiftkv import ProxyVotes
from kv_caches.statistics import PrefillStats
from tests.models import FAMILIES, build
from tests.prompts import inputs

from .support import prompt_of, random_view


@pytest.fixture
def views(monkeypatch):
    """Layers of one prompt of a family, as statistics see them."""

    def see(family, kind="image"):
        seen, collect = [], PrefillStats.collect

        def spy(self, index, layer, needs):
            seen.append(layer)
            return collect(self, index, layer, needs)

        monkeypatch.setattr(PrefillStats, "collect", spy)
        model = build(family)
        with attach(model, KVConfig("mm_shiftkv", 0.3)), torch.no_grad():
            model(**inputs(model, kind, "text"))
        return seen[::2]

    return see


def own_queries(view):
    """Queries of the attention module before RoPE, from its own weights: (H, N, d)."""
    with torch.no_grad():
        queries = view.module.q_proj(view.hidden).view(view.length, view.heads, -1)
        if hasattr(view.module, "q_norm"):
            queries = view.module.q_norm(queries)
    return queries.transpose(0, 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_rotations_are_the_models_own(views, family):
    for view in views(family):
        queries = own_queries(view)
        torch.testing.assert_close(rope.rotate(queries, *view.rotary), view.queries, atol=1e-5, rtol=0)
        torch.testing.assert_close(rope.unrotate(view.queries, *view.rotary), queries, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_positions_count_on_from_the_last_token(views, family):
    view = views(family)[0]  # its last tokens are text, one position apart
    cos, sin = rope.later(view, torch.tensor([0, -1, -2]))
    torch.testing.assert_close(cos, view.rotary[0][[-1, -2, -3]], atol=1e-5, rtol=0)
    torch.testing.assert_close(sin, view.rotary[1][[-1, -2, -3]], atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl", "qwen3_vl"])
def test_proxies_without_spread_are_the_mean_input_at_later_positions(views, family):
    view = views(family)[1]
    proxies = ProxyVotes(proxies=12, groups=4, widening=0.0).draw(view)
    mean = view.hidden.mean(0, keepdim=True)
    with torch.no_grad():
        query = view.module.q_proj(mean).view(view.heads, 1, -1)
        if hasattr(view.module, "q_norm"):
            query = view.module.q_norm(query)
    for index in range(12):
        turn = rope.later(view, torch.tensor([4 * (index % 3 + 1)]))
        torch.testing.assert_close(proxies[:, index : index + 1], rope.rotate(query, *turn), atol=1e-5, rtol=0)


def test_proxies_spread_per_feature_or_alike():
    view = random_view(prompt_of("TTTVVVVVVVVTTTT" * 4), head_dim=16, heads=1, kv_heads=1)
    view.hidden = view.hidden * torch.linspace(0.1, 2, 16) + 3
    view.module.q_proj.weight.data.copy_(torch.eye(16))
    view.inv_freq = torch.zeros(8)
    view.rotary = (torch.ones(60, 16), torch.zeros(60, 16))
    wide = {"proxies": 4096, "groups": 32, "widening": 10.0}
    own = ProxyVotes(per_feature=True, **wide).draw(view)[0]
    torch.testing.assert_close(own.std(0), 10 * view.hidden.std(0), rtol=0.06, atol=0)
    torch.testing.assert_close(own.mean(0), view.hidden.mean(0), rtol=0, atol=1.2)
    alike = ProxyVotes(per_feature=False, **wide).draw(view)[0]
    torch.testing.assert_close(alike.std(0), 10 * view.hidden.std().expand(16), rtol=0.06, atol=0)


def test_the_draw_belongs_to_sample_and_layer():
    statistic = ProxyVotes(proxies=8, groups=2)

    def draw(seed, layer):
        view = random_view(prompt_of("TTVVVVTT", seed))
        view.module.layer_idx = layer
        return statistic.draw(view)

    assert torch.equal(draw(1, 0), draw(1, 0))
    assert not torch.equal(draw(1, 0), draw(2, 0))
    assert not torch.equal(draw(1, 0), draw(1, 1))


def test_the_mean_rotation_is_the_mean_of_rotations():
    view = random_view(prompt_of("T" * 20))
    turn = ExpectedAttention(future=3).mean_rotation(view)
    x = torch.randn(5, 8)
    cos, sin = rope.later(view, torch.arange(1, 4))
    expected = torch.stack([rope.rotate(x, c, s) for c, s in zip(cos, sin)]).mean(0)
    torch.testing.assert_close(x @ turn.T, expected)


def test_the_record_tells_the_observation_window():
    model = build("llava")
    for config, window in ((KVConfig("snapkv", 0.3), 4), (KVConfig("h2o", 0.3), None)):
        with attach(model, config) as attachment, torch.no_grad():
            model(**inputs(model, "image"))
            (record,) = attachment.take_records()
        assert record["prompt_tokens"] == 33
        assert record["observation_window"] == window

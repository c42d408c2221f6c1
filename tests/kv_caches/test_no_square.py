"""No statistic and no method ever allocates a tensor of N x N elements; what needs nothing computes nothing."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kv_caches import registry
from kv_caches.statistics import PrefillStats

from .support import at_any_share, build, every_variant, prompt_of, random_view

N = 4096
PROMPT = prompt_of("T" * 35 + "V" * 4000 + "T" * (N - 4035))


class NoSquare(TorchDispatchMode):
    """Fails on any result with as many elements as the limit or more, views included; counts operations."""

    def __init__(self, limit=N * N):
        super().__init__()
        self.limit, self.operations, self.largest = limit, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.numel())
                assert tensor.numel() < self.limit, f"{func} made {tuple(tensor.shape)}"
        return result


@pytest.fixture(scope="module")
def view():
    return random_view(PROMPT, heads=4, kv_heads=2, head_dim=8)


STATISTICS = {s.name: s for pair in every_variant() for s in build(*pair).needs}


@pytest.mark.parametrize("name", sorted(STATISTICS))
def test_statistics_stay_linear(view, name):
    with NoSquare() as guard:
        STATISTICS[name].collect(view)
    assert guard.largest > 0


def test_the_guard_sees_what_it_should(view):
    with NoSquare(), pytest.raises(AssertionError, match="made"):
        view.rows(torch.arange(N))


def test_choosing_stays_linear(view):
    needs = frozenset().union(*(build(*pair).needs for pair in every_variant()))
    stats = PrefillStats(PROMPT, 3)
    stats.collect(0, view, needs)
    stats._layers = stats._layers[:1] * 3
    with NoSquare(limit=200 * N):  # two heads of 64 window rows are the most
        for name, variant in at_any_share():
            for retention in (0.05, 0.5):
                assert len(build(name, variant).select(stats, retention).kept) == 3


def test_choosing_what_to_prune_stays_linear(view):
    pruning = [pair for pair in every_variant() if pair not in at_any_share()]
    for method in [build(*pair) for pair in pruning]:
        stats = PrefillStats(PROMPT, 6)
        stats.collect(0, view, method.needs)
        stats._layers = stats._layers[:1] * 6
        with NoSquare(limit=200 * N):
            assert len(method.select(stats, 0.55).kept) == 6
    assert pruning


def test_merging_stays_linear(view):
    keys, kept = view.keys.clone(), torch.arange(0, N, 2)
    for name in ("elastic_cache", "look_m"):
        with NoSquare(limit=N * N // 2):  # blocks of at most 4 Mi of the 2048 x 2048 pairs
            merging = build(name, "paper").merge.merge(kept, keys[:1], PROMPT)
        assert merging.leaving.numel() in (N // 2, N // 2 - 1)


@pytest.mark.parametrize("name", ["full", "streaming_llm", "random", "random_text_first", "random_vision_first"])
def test_a_method_that_needs_nothing_computes_nothing(view, name):
    method, stats = build(name, registry.variants(name)[0]), PrefillStats(PROMPT, 1)
    assert method.needs == frozenset()
    with NoSquare() as guard:
        stats.collect(0, view, method.needs)
    assert guard.operations == 0

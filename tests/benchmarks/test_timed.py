"""Every check of times gives a ratio for each of its promises; on the smallest shapes, their values are not tested."""

import pytest

from benchmarks import check, layers, shapes, timed


@pytest.fixture(autouse=True)
def small(monkeypatch):
    build, prompt = shapes.build, shapes.prompt
    monkeypatch.setattr(shapes, "build", lambda name, device, attention="sdpa": build("smoke", device, attention))
    monkeypatch.setattr(shapes, "prompt", lambda length, batch, device: prompt(max(80, length // 16), batch, device))
    monkeypatch.setattr(timed, "layer", lambda n, heads=16: layers.layer(n // 16, heads))


@pytest.mark.parametrize("name", [made.__name__ for made in check.CHECKS if made.__module__ == timed.__name__])
def test_there_is_a_ratio_for_every_promise(name):
    made = getattr(timed, name)()
    ratios = made.ratios(**{side: run() for side, run in made.sides.items()})
    assert len(ratios) == len(made.promises)
    assert all(ratio > 0 for ratio in ratios)


def test_both_sides_of_scorings_growth_hold_as_many_entries():
    long, wide = layers.layer(512, 4), layers.layer(128, 16)
    assert long.keys.nbytes == wide.keys.nbytes
    assert long.prompt.text.numel() == wide.prompt.text.numel() == shapes.TEXT_ROWS


def test_a_short_full_cache_holds_as_many_entries_as_an_evicted_one(monkeypatch):
    monkeypatch.undo()
    kept = int(timed.TGV.retention * 8192 * 4) / 4  # a layer's mean
    assert round(timed.TGV.retention * 8192) == pytest.approx(kept, rel=0.002)

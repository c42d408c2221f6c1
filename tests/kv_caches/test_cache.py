"""The storage of one layer: room for generated tokens, padding, beams."""

import pytest
import torch

from kv_caches.cache import EMPTY, ROOM, EvictingLayer

HEADS, DIM, PROMPT, STEPS = 2, 4, 10, 2 * ROOM + 3
SLOTS = [[torch.tensor([0, 3, 9])], [torch.tensor([2, 4, 5, 8, 9])]]


def states(tokens: int, seed: int) -> torch.Tensor:
    return torch.randn(2, HEADS, tokens, DIM, generator=torch.Generator().manual_seed(seed))


def prefilled(offsets=(0, 2)) -> EvictingLayer:
    layer = EvictingLayer(torch.tensor(offsets))
    layer.update(states(PROMPT, 0), states(PROMPT, 1))
    return layer


@pytest.fixture(params=["evicted", "whole"])
def layer(request) -> EvictingLayer:
    return prefilled().take([0, 1], SLOTS) if request.param == "evicted" else prefilled()


def test_a_layer_grown_in_place_holds_what_concatenation_would(layer):
    keys, values, positions = layer.keys.clone(), layer.values.clone(), layer.positions
    for step in range(STEPS):
        new = states(1, 2 * step + 2), states(1, 2 * step + 3)
        got = layer.update(*new)
        keys, values = torch.cat([keys, new[0]], dim=2), torch.cat([values, new[1]], dim=2)
        assert torch.equal(got[0], keys)
        assert torch.equal(got[1], values)
        fresh = (PROMPT + step - layer.offsets)[:, None, None]
        positions = torch.cat([positions, fresh], dim=-1)
        assert torch.equal(layer.positions, positions)
        assert torch.equal(layer.valid(None), positions != EMPTY)


def test_a_step_copies_its_own_token_only(layer):
    layer.update(states(1, 2), states(1, 3))
    places = set()
    for step in range(ROOM):
        layer.update(states(1, step), states(1, step))
        places.add((layer.keys.data_ptr(), layer.values.data_ptr()))
    assert len(places) == 1


def test_what_stays_after_eviction_is_stored_without_room():
    layer = prefilled().take([0, 1], SLOTS)
    assert layer.keys.untyped_storage().nbytes() == layer.keys.nbytes == 2 * HEADS * 5 * DIM * 4


def test_room_asked_for_is_used_before_another_copy():
    layer = prefilled().take([0, 1], SLOTS, room=3)
    place = layer.keys.data_ptr()
    layer.update(states(3, 2), states(3, 3))
    assert layer.keys.data_ptr() == place
    assert layer.update(states(1, 4), states(1, 5))[0].data_ptr() != place


@pytest.mark.parametrize("grown", [False, True])
def test_beams_and_selections_move_everything(layer, grown):
    if grown:
        layer.update(states(1, 2), states(1, 3))
    keys, positions, valid = layer.keys.clone(), layer.positions, layer.valid(None)
    layer.reorder_cache(torch.tensor([1, 1]))
    assert torch.equal(layer.keys, keys[[1, 1]])
    assert torch.equal(layer.positions, positions[[1, 1]])
    layer.batch_repeat_interleave(2)
    layer.batch_select_indices(torch.tensor([0, 3]))
    assert torch.equal(layer.valid(None), valid[[1, 1]])
    token = states(1, 4)
    assert torch.equal(layer.update(token, token)[0], torch.cat([keys[[1, 1]], token], dim=2))


def test_a_window_hides_what_is_behind_it():
    layer = prefilled((0, 0)).take([0, 1], [[torch.tensor([0, 3, 9])]] * 2)
    layer.update(states(1, 2), states(1, 3))  # position 10
    assert layer.valid(8)[0, 0].tolist() == [False, True, True, True]
    assert layer.valid(7)[0, 0].tolist() == [False, False, True, True]

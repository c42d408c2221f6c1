"""Rows and heads of unequal length, stored without padding: the attention of padded ones, and no byte more."""

import copy
import pickle
from functools import partial

import pytest
import torch

from kv_caches import KVConfig, UnsupportedError, attach, kernels
from kv_caches.cache import ROOM, EvictingLayer
from kv_caches.packed import PackedLayer, packable
from tests.models import build
from tests.prompts import inputs

HEADS, KV_HEADS, DIM, PROMPT = 4, 2, 8, 12
OFFSETS = torch.tensor([0, 3])
CALL = partial(kernels._call, "sdpa", None)


def index(*slots):
    return torch.tensor(slots)


SHARED = [[index(0, 3, 11)], [index(4, 5, 6, 8, 9, 11)]]
PER_HEAD = [[index(0, 11), index(1, 2, 3, 4)], [index(3, 4, 5, 11), index(9)]]
MIXED = [[index(0, 2, 5, 11)], [index(3, 11), index(4, 5, 6, 7, 8)]]
CASES = {"rows": SHARED, "heads": PER_HEAD, "rows and heads": MIXED}


def states(heads, tokens, seed):
    return torch.randn(2, heads, tokens, DIM, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def prompt():
    layer = EvictingLayer(OFFSETS)
    layer.update(states(KV_HEADS, PROMPT, 0), states(KV_HEADS, PROMPT, 1))
    return layer


def attended(layer, step, window=None):
    """The layer's output (B, 1, H, d) for one more token."""
    batch = layer.offsets.shape[0]
    new = [states(KV_HEADS, 1, 2 * step + seed).repeat(batch // 2, 1, 1, 1) for seed in (2, 3)]
    query = states(HEADS, 1, 7 * step + 5).repeat(batch // 2, 1, 1, 1)
    layer.update(*new)
    kwargs = {"scaling": DIM**-0.5, "sliding_window": window}
    return layer.attend(CALL, torch.nn.Module().eval(), query, kwargs)[0]


def same(packed, padded, steps, window=None, first=0):
    for step in range(first, first + steps):
        got, expected = attended(packed, step, window), attended(padded, step, window)
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("slots", CASES.values(), ids=CASES)
@pytest.mark.parametrize("window", [None, 7])
def test_packed_and_padded_give_the_same_through_every_growth(prompt, slots, window):
    packed, padded = PackedLayer.of(prompt, [0, 1], slots), prompt.take([0, 1], slots)
    same(packed, padded, 2 * ROOM + 3, window)
    assert torch.equal(packed.positions, padded.positions)
    assert torch.equal(packed.held(), padded.held())
    assert packed.get_seq_length() == padded.get_seq_length() == PROMPT + 2 * ROOM + 3


@pytest.mark.parametrize("slots", CASES.values(), ids=CASES)
def test_nothing_but_entries_is_stored(prompt, slots):
    packed = PackedLayer.of(prompt, [0, 1], slots)
    entries = [sum(one.numel() for one in row) * KV_HEADS // len(row) for row in slots]
    assert packed.nbytes == 2 * sum(entries) * DIM * 4
    assert [packed.row_bytes(row) for row in (0, 1)] == [2 * held * DIM * 4 for held in entries]


@pytest.mark.parametrize("slots", CASES.values(), ids=CASES)
@pytest.mark.parametrize("grown", [0, 2])
def test_beams_and_selections_move_everything(prompt, slots, grown):
    packed, padded = PackedLayer.of(prompt, [0, 1], slots), prompt.take([0, 1], slots)
    same(packed, padded, grown)
    for layer in (packed, padded):
        layer.batch_repeat_interleave(2)
        layer.reorder_cache(torch.tensor([3, 0, 2, 1]))
        layer.batch_select_indices(torch.tensor([1, 0]))
    same(packed, padded, 3, first=grown)
    assert torch.equal(packed.positions, padded.positions)


def test_a_step_copies_its_own_token_only(prompt):
    packed, places = PackedLayer.of(prompt, [0, 1], PER_HEAD), set()
    for step in range(ROOM):
        attended(packed, step)
        places.add((packed.keys.data_ptr(), packed.values.data_ptr()))
    assert len(places) == 1


def test_equal_rows_are_not_packed_and_little_padding_is_accepted(prompt):
    equal = [[index(0, 3, 11)], [index(4, 5, 6)]]
    assert not packable(prompt, equal, 0, 2)
    entry = 2 * KV_HEADS * DIM * 4
    assert packable(prompt, SHARED, 0, 2)
    assert packable(prompt, SHARED, 3 * entry // 2 - 1, 2)
    assert not packable(prompt, SHARED, 3 * entry // 2, 2)


def test_a_mask_of_samples_selects_as_indices_do(prompt):
    packed, padded = (
        make(prompt) for make in (lambda p: PackedLayer.of(p, [0, 1], MIXED), lambda p: p.take([0, 1], MIXED))
    )
    for layer in (packed, padded):
        layer.batch_repeat_interleave(2)
        layer.batch_select_indices(torch.tensor([True, False, False, True]))
    same(packed, padded, 2)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))], ids=["deep", "pickle"]
)
def test_a_copy_goes_on_by_itself(prompt, copied):
    packed, padded = PackedLayer.of(prompt, [0, 1], PER_HEAD), prompt.take([0, 1], PER_HEAD)
    attended(packed, 0), attended(padded, 0)
    twin = copied(packed)
    attended(packed, 9)
    same(twin, padded, 3, first=1)


@pytest.mark.parametrize("packed", [True, False])
def test_entries_that_left_do_not_come_back(prompt, packed):
    layer = PackedLayer.of(prompt, [0, 1], SHARED) if packed else prompt.take([0, 1], SHARED)
    for change in (layer.reset, lambda: layer.crop(-1)):
        with pytest.raises(UnsupportedError, match="start from an empty one"):
            change()


@pytest.mark.parametrize("packed", [True, False])
def test_steps_may_leave_inference_mode(packed):
    with torch.inference_mode():
        prompt = EvictingLayer(OFFSETS)
        prompt.update(states(KV_HEADS, PROMPT, 0), states(KV_HEADS, PROMPT, 1))
        layer = PackedLayer.of(prompt, [0, 1], SHARED) if packed else prompt.take([0, 1], SHARED)
        twin = prompt.take([0, 1], SHARED)
        same(layer, twin, 2)
    with torch.no_grad():
        same(layer, twin, 2, first=2)


@pytest.mark.parametrize("family", ["llava", "qwen3_vl"])
def test_beam_search_over_packed_rows_finds_what_it_finds_over_padded_ones(family, monkeypatch):
    model = build(family)
    batch, options = inputs(model, "image", "short_image"), {"num_beams": 3, "max_new_tokens": 6, "do_sample": False}
    with attach(model, KVConfig("ada_kv", 0.3)):
        packed = model.generate(**batch, **options)
    monkeypatch.setattr("kv_caches.rows.packable", lambda *_: False)
    with attach(model, KVConfig("ada_kv", 0.3)):
        assert torch.equal(packed, model.generate(**batch, **options))

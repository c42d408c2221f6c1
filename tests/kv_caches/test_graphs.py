"""Recorded decode steps, without a card: recording is replaced by running the same step again on the same storage.

What a CUDA graph adds is that nothing but the recorded kernels runs. So the step itself is watched: two of its runs
must launch the same operations on the same shapes with the same numbers, and never ask the device for a value.
"""

import gc
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from kv_caches import KVConfig, UnsupportedError, attach, graphs, kernels
from tests.models import FAMILIES, build
from tests.prompts import inputs

CONFIGS = [KVConfig(), KVConfig("tgv_kv", 0.3), KVConfig("ada_kv", 0.3), KVConfig("snapkv", 0.2)]
PROMPTS = [("image",), ("two_images", "short_image")]
STEPS, ROOM = 17, 5
OPTIONS = {"do_sample": False, "output_logits": True, "return_dict_in_generate": True, "max_new_tokens": STEPS}
SYNCS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::masked_select", "aten::equal"}


class Watched(TorchDispatchMode):
    """Every operation with the shapes of its tensors and the values of its other arguments."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        described = tree_map_only(torch.Tensor, lambda t: (tuple(t.shape), t.dtype), (args, kwargs or {}))
        self.seen.append((func.name(), repr(described)))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def recorded(monkeypatch):
    """What every replay launches, a list for each step that was recorded; a replay runs the step again."""
    launched = []

    def record(step):
        output, replays = step(), []
        launched.append(replays)

        def replay():
            with Watched() as watched:
                new = step()
            replays.append(watched.seen)
            output.last_hidden_state.copy_(new.last_hidden_state)

        return output, replay

    monkeypatch.setattr(graphs, "check", lambda *_: None)
    monkeypatch.setattr(graphs, "record", record)
    monkeypatch.setattr(graphs, "ROOM", ROOM)
    return launched


def again(model, token, output):
    """One more step of the cache that an output has."""
    name = kernels.cache_argument(model)
    return model(input_ids=token, use_cache=True, **{name: output[name]})


def run(model, config, batch, graph):
    with attach(model, config, graph=graph) as attachment:
        output = model.generate(**batch, **OPTIONS)
        return output.sequences, torch.stack(output.logits), attachment.take_records()


@pytest.mark.parametrize("prompt", PROMPTS, ids="+".join)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.method)
@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_steps_give_what_steps_give(family, config, prompt, recorded):
    model = build(family)
    batch = inputs(model, *prompt)
    tokens, logits, records = run(model, config, batch, graph=False)
    got_tokens, got_logits, got_records = run(model, config, batch, graph=True)
    assert len(recorded) == 3  # the first step and each time the room was full
    assert torch.equal(got_tokens, tokens)
    assert (got_logits - logits).abs().max() < 1e-5 * logits.abs().max()
    assert got_records == records


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("config", CONFIGS[:3], ids=lambda c: c.method)
def test_every_replay_launches_the_same_and_never_waits_for_a_value(family, config, recorded):
    model = build(family)
    run(model, config, inputs(model, *PROMPTS[1]), graph=True)
    assert [len(replays) for replays in recorded] == [5, 5, 3]
    for replays in recorded:
        assert all(launched == replays[0] for launched in replays)
        assert len(replays[0]) > 50
        assert not {name for name, _ in replays[0]} & SYNCS


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.method)
def test_a_step_that_is_not_recorded_never_waits_either(family, config):
    model = build(family)
    with attach(model, config), torch.no_grad():
        output = model(**inputs(model, *PROMPTS[1]))
        for _ in range(2):  # the first one makes room
            token = output.logits[:, -1:].argmax(-1)
            with Watched() as watched:
                output = again(model, token, output)
    assert len(watched.seen) > 50
    assert not {name for name, _ in watched.seen} & SYNCS


def test_what_a_graph_writes_to_lives_as_long_as_the_graph(recorded, monkeypatch):
    """A graph holds addresses; here, as there, nothing of a recorded step is kept by its replay."""
    held = []

    def record(step):
        cells = dict(zip(step.__code__.co_freevars, step.__closure__))
        fixed = cells["fixed"].cell_contents
        held.extend(
            weakref.ref(tensor) for tensor in (cells["count"].cell_contents, fixed[0]._starts, fixed[0]._lengths)
        )
        output = step()
        return output, lambda: None

    monkeypatch.setattr(graphs, "record", record)
    model = build("llava")
    with attach(model, CONFIGS[1], graph=True):
        model.generate(**inputs(model, "image"), max_new_tokens=4, do_sample=False)
        gc.collect()
        assert len(held) == 3
        assert all(reference() is not None for reference in held)


def test_states_that_a_caller_keeps_are_not_overwritten(recorded):
    model, kept = build("llava"), []
    handle = model.get_decoder().register_forward_hook(lambda *a: kept.append(a[-1].last_hidden_state))
    with attach(model, CONFIGS[1], graph=True):
        model.generate(**inputs(model, "image"), max_new_tokens=6, do_sample=False)
    handle.remove()
    assert len({state.data_ptr() for state in kept}) == len(kept) == 6


def test_other_outputs_are_made_by_steps_that_are_not_replayed(recorded, monkeypatch):
    model = build("llava")
    ids = inputs(model, "image")
    with attach(model, CONFIGS[1], graph=True), torch.no_grad():
        output = model(**ids)
        for step in range(3):
            token = output.logits[:, -1:].argmax(-1)
            monkeypatch.setattr(model.get_decoder().config, "output_hidden_states", step == 2)
            output = again(model, token, output)
            assert bool(output.hidden_states) == (step == 2)


def test_a_second_prompt_is_recorded_anew(recorded):
    model = build("llava")
    alone = [run(model, CONFIGS[1], inputs(model, name), graph=False)[0] for name in ("image", "short_image")]
    with attach(model, CONFIGS[1], graph=True):
        both = [model.generate(**inputs(model, name), **OPTIONS).sequences for name in ("image", "short_image")]
    assert all(torch.equal(got, expected) for got, expected in zip(both, alone, strict=True))
    assert len(recorded) == 6


def test_beams_move_what_was_recorded_and_are_followed(recorded):
    model = build("llava")
    batch, options = inputs(model, "image"), {"num_beams": 3, "max_new_tokens": 9, "do_sample": False}
    with attach(model, CONFIGS[1]):
        expected = model.generate(**batch, **options)
    with attach(model, CONFIGS[1], graph=True):
        assert torch.equal(model.generate(**batch, **options), expected)


def test_positions_are_counted_where_the_caller_gives_none(recorded):
    model, config = build("llava"), CONFIGS[1]
    ids = inputs(model, "image")

    def tokens(graph):
        with attach(model, config, graph=graph), torch.no_grad():
            output, found = model(**ids), []
            for _ in range(9):
                found.append(output.logits[:, -1:].argmax(-1))
                output = again(model, found[-1], output)
        return torch.cat(found, dim=1)

    assert torch.equal(tokens(True), tokens(False))
    assert [len(replays) for replays in recorded] == [5, 2]


def test_the_decoder_is_as_it_was_after_detaching(recorded):
    model = build("llava")
    decoder = model.get_decoder()
    before = decoder.forward
    attachment = attach(model, CONFIGS[1], graph=True)
    assert decoder.forward is not before
    attachment.detach()
    assert "forward" not in decoder.__dict__
    assert decoder.forward == before


def test_what_cannot_be_recorded_is_refused():
    model = build("llava")
    with pytest.raises(UnsupportedError, match=r"graph=True needs the model on one CUDA device; it is on cpu"):
        attach(model, CONFIGS[1], graph=True)
    attach(model, CONFIGS[1]).detach()


def test_entries_that_leave_while_decoding_are_refused(monkeypatch):
    model = build("llava")
    devices = [type("Parameter", (), {"device": torch.device("cuda", 0)})]
    monkeypatch.setattr(type(model.get_decoder()), "parameters", lambda _: devices)
    with pytest.raises(UnsupportedError, match="KV_DECODE=append"):
        graphs.check(model, "evict")
    graphs.check(model, "append")

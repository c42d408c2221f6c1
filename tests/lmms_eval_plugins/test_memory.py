"""A sweep holds one prompt cache at a time, and beside it the forks that are decoding."""

import os

import psutil
import pytest
import torch

from benchmarks.caches import CacheMeter
from kv_caches.cache import ROOM
from lmms_eval_plugins.models import grid as grid_module

from . import grid, toy


@pytest.fixture
def model(checkpoint, environment, monkeypatch):
    path = environment.with_name("sweep.yaml")
    path.write_text(grid.SWEEP)
    for name, value in {**grid.ENVIRONMENT, "KV_SWEEP": str(path)}.items():
        monkeypatch.setenv(name, value)
    return lambda: grid.wrapper(checkpoint("llava"), environment, batch=1)


@pytest.mark.parametrize("rows", [1, 3])
def test_one_prompt_cache_and_the_forks_in_flight_are_alive(rows, model, environment, monkeypatch):
    monkeypatch.setenv("KV_DECODE_BATCH", str(rows))
    asked = model()
    with CacheMeter() as meter:
        grid.ask(asked, toy.documents(), tokens=4)
    records = toy.records(environment)
    assert len(records) == grid.CONFIGURATIONS * len(toy.documents())
    assert meter.prompts == asked.model.config.get_text_config().num_hidden_layers  # of one prompt
    longest = max(record["eviction"]["prompt_tokens"] for record in records)
    room = meter.prompt * (ROOM + 1) / longest
    assert meter.prompt < meter.peak <= meter.prompt + rows * (meter.prompt + room)


def test_as_many_rows_decode_together_as_fit_beside_the_prompt(model, environment, monkeypatch):
    """Room for generated tokens counts: at a small budget it is more than what was kept of the prompt."""
    limit, sizes, proceed = 1_000_000, [], grid_module.GridPass._continue

    def noted(self, prompt, cache, rows, finite):
        sizes.append(len(rows))
        return proceed(self, prompt, cache, rows, finite)

    monkeypatch.setattr(grid_module.GridPass, "_continue", noted)
    monkeypatch.setattr(grid_module, "_free_bytes", lambda device: limit)
    with CacheMeter() as meter:
        grid.ask(model(), toy.documents(), tokens=4)
    assert max(sizes) > 1
    assert meter.peak - meter.prompt <= limit * grid_module._PART_OF_FREE_MEMORY


def test_free_memory_is_known_where_the_names_of_linux_are_not(model, environment, monkeypatch):
    """On macOS `os.sysconf` knows no SC_AVPHYS_PAGES; not one sample of a sweep may hang on such a name."""

    def unknown(name):
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "sysconf", unknown)
    assert 0 < grid_module._free_bytes(torch.device("cpu")) <= psutil.virtual_memory().total
    grid.ask(model(), toy.documents(), tokens=2)
    assert {record["status"] for record in toy.records(environment)} == {"ok"}

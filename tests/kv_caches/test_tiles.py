"""Attention rows cut into tiles and blocks are the rows in one piece, with windows and any choice of queries."""

from dataclasses import replace

import pytest
import torch

from kv_caches import attention
from kv_caches.statistics import ColumnSums, Received, TextGrounding

from .support import prompt_of, random_view

PROMPT = prompt_of("TT" + "V" * 20 + "TTT" + "V" * 9 + "TTTTT")


@pytest.fixture(params=[None, 7], ids=["full", "window"])
def view(request):
    return replace(random_view(PROMPT), window=request.param)


def close(ours, reference):
    torch.testing.assert_close(ours.double(), reference, atol=1e-5, rtol=1e-5)


def naive(view):
    """(H, N, N) in float64."""
    keys = view.keys.double().repeat_interleave(view.heads // view.kv_heads, dim=0)
    logits = view.queries.double() @ keys.transpose(1, 2) * view.scaling
    row, column = torch.arange(view.length)[:, None], torch.arange(view.length)
    hidden = column > row
    if view.window:
        hidden |= column <= row - view.window
    return logits.masked_fill(hidden, -torch.inf).softmax(-1)


@pytest.mark.parametrize(("cached", "block"), [(1 << 18, 1 << 22), (40 * 3, 40 * 5), (1, 1)])
def test_statistics_do_not_depend_on_the_cut(view, monkeypatch, cached, block):
    monkeypatch.setattr(attention, "CACHED_ELEMENTS", cached)
    monkeypatch.setattr(attention, "BLOCK_ELEMENTS", block)
    full, text = naive(view), PROMPT.text
    close(ColumnSums().collect(view), full.sum(1))
    mean = full.mean(0)
    for role in ("text", "vision"):
        close(Received(role).collect(view), mean[getattr(PROMPT, role)].sum(0))
    ours, received = TextGrounding().collect(view), mean[text].sum(0)
    weights = received[text] / torch.arange(text.numel(), 0, -1)
    close(ours.received, received)
    close(ours.weighted, weights @ mean[text])
    close(ours.weight, weights.sum())


def test_a_tile_says_which_rows_it_holds(view, monkeypatch):
    monkeypatch.setattr(attention, "CACHED_ELEMENTS", 4 * PROMPT.length)
    full, index = naive(view), torch.tensor([1, 2, 5, 11, 12, 30, 38])
    seen = torch.zeros(view.heads, index.numel())
    for heads, part, rows in view.tiles(index):
        close(rows, full[heads, index[part], : rows.shape[-1]])
        assert not full[heads, index[part], rows.shape[-1] :].any()
        seen[heads, part] += 1
    assert (seen == 1).all()

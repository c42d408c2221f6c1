"""Operations and bytes are counted as shapes say, whatever the machine."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.work import Work

NUMBER = 4


def counted(function):
    with torch.inference_mode(), Work() as work:
        function()
    return work


def test_a_product_counts_its_operations_and_what_it_reads_and_writes():
    one, two = torch.ones(8, 16), torch.ones(16, 4)
    work = counted(lambda: one @ two)
    assert work.flops == 2 * 8 * 16 * 4
    assert work.bytes == NUMBER * (8 * 16 + 16 * 4 + 8 * 4)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_above_the_diagonal_is_not_counted(causal):
    states = torch.ones(1, 2, 32, 16)
    work = counted(lambda: scaled_dot_product_attention(states, states, states, is_causal=causal))
    assert work.flops == 2 * 2 * 2 * 32 * 32 * 16 // (2 if causal else 1)


def test_views_cost_nothing_and_what_is_chosen_counts_alone():
    states = torch.ones(1000, 16)
    index = torch.tensor([3, 5])
    assert counted(lambda: states[10:20].view(-1).transpose(0, 0)).bytes == 0
    assert counted(lambda: states[index]).bytes == 2 * NUMBER * 2 * 16
    out = torch.empty(2, 16)
    rows = index[:, None].expand(2, 16)
    assert counted(lambda: torch.gather(states, 0, rows, out=out)).bytes == 2 * NUMBER * 2 * 16


def test_an_expanded_tensor_is_read_once():
    one, many = torch.ones(1, 16).expand(64, 16), torch.ones(64, 16)
    assert counted(lambda: one + many).bytes == NUMBER * (16 + 2 * 64 * 16)

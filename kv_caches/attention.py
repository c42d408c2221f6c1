"""Attention rows of one layer, recomputed for the queries a method asks for: in blocks, float32, never N x N."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .prompt import Prompt

BLOCK_ELEMENTS = 1 << 22  # floats of attention rows held at a time: 16 MiB
CACHED_ELEMENTS = 1 << 20  # on a CPU, for each thread: 4 MiB, which stay in its caches from the product to the sums


@dataclass(eq=False)
class LayerView:
    """Queries, keys and values of one sample in one layer during prefill, after norm and RoPE, padding removed.

    Attributes:
        queries: (H, N, d). keys, values: (G, N, d); query head h reads KV head h // (H / G).
        scaling: factor on the logits, usually d ** -0.5.
        window: sliding-window size in tokens, or None for full attention.
        module: the layer's attention module, for methods that need its weights; hidden: (N, D) its input and
        rotary: the (cos, sin) it was called with, (N, d) each, both None unless a statistic says it needs the
        module's inputs. inv_freq: (d / 2,) rotation of each pair of features per position.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    prompt: Prompt
    scaling: float
    window: int | None = None
    module: torch.nn.Module | None = None
    hidden: Tensor | None = None
    rotary: tuple[Tensor, Tensor] | None = None
    inv_freq: Tensor | None = None

    @property
    def heads(self) -> int:
        """H, the number of query heads."""
        return self.queries.shape[0]

    @property
    def kv_heads(self) -> int:
        """G, the number of KV heads."""
        return self.keys.shape[0]

    @property
    def length(self) -> int:
        """N, the number of prompt tokens."""
        return self.keys.shape[1]

    @cached_property
    def _keys_t(self) -> Tensor:
        return self.keys.float().transpose(1, 2)  # (G, d, N)

    def rows(self, index: Tensor, groups: slice = slice(None)) -> Tensor:
        """Attention rows of the queries at ``index`` (ascending) over keys 0..max(index).

        Args:
            groups: KV heads whose query heads are wanted.

        Returns:
            (h, r, M) float32 with M = max(index) + 1; keys behind M are invisible to all these rows.
        """
        first, width = int(index[0]), int(index[-1]) + 1
        index = index.to(self.keys.device)
        query = self.queries.unflatten(0, (self.kv_heads, -1))[groups][:, :, index].float() * self.scaling
        logits = (query.flatten(1, 2) @ self._keys_t[groups, :, :width]).view(-1, index.numel(), width)
        if self.window is not None:
            key = torch.arange(width, device=index.device)
            logits.masked_fill_(key <= index[:, None] - self.window, -torch.inf)
        later = torch.arange(first, width, device=index.device) > index[:, None]
        logits[..., first:].masked_fill_(later, -torch.inf)
        return logits.softmax(-1)

    def tiles(self, index: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield (query heads, part of ``index``, rows (h, r, M)) over ascending queries, a bounded tile at a time."""
        together, elements = self.kv_heads, BLOCK_ELEMENTS
        if self.keys.is_cpu:
            together = min(self.kv_heads, torch.get_num_threads())  # a KV head each
            elements = CACHED_ELEMENTS * together
        per = self.heads // self.kv_heads
        size = max(1, elements // (together * per * self.length))
        for group in range(0, self.kv_heads, together):
            for start in range(0, index.numel(), size):
                part = slice(start, min(start + size, index.numel()))
                rows = self.rows(index[part], slice(group, group + together))
                yield slice(group * per, (group + together) * per), part, rows

    def head_means(self, index: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (positions (r,), mean over query heads of their rows (r, M)), a bounded block at a time."""
        for block in index.split(max(1, BLOCK_ELEMENTS // self.length)):
            total = torch.zeros(block.numel(), int(block[-1]) + 1, device=self.keys.device)
            for _, part, rows in self.tiles(block):
                total[part, : rows.shape[-1]] += rows.sum(0)
            yield block, total / self.heads


def newest_row(query: Tensor, keys: Tensor, scaling: float, visible: Tensor | None = None) -> Tensor:
    """Attention of one query over cached keys of one KV head group, for decode rules.

    Args:
        query: (H, d). keys: (G, S, d). visible: (S,) bool, or None when every slot is visible.

    Returns:
        (H, S) float32.
    """
    query = query.float().view(keys.shape[0], -1, query.shape[-1])
    logits = (query @ keys.float().transpose(1, 2)).flatten(0, 1) * scaling
    return (logits if visible is None else logits.masked_fill(~visible, -torch.inf)).softmax(-1)

"""Attention rows of one layer, recomputed for the queries a method asks for: in blocks, float32, never N x N."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .prompt import Prompt

BLOCK_ELEMENTS = 1 << 22  # floats in one block of attention rows: 16 MiB


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

    def rows(self, index: Tensor) -> Tensor:
        """Attention rows of the queries at ``index`` (ascending) over keys 0..max(index).

        Returns:
            (H, r, M) float32 with M = max(index) + 1; keys behind M are invisible to all these rows.
        """
        index = index.to(self.keys.device)
        width = int(index[-1]) + 1
        query = self.queries[:, index].float().reshape(self.kv_heads, -1, self.queries.shape[-1])
        logits = (query @ self._keys_t[:, :, :width]) * self.scaling
        logits = logits.view(self.heads, index.numel(), width)
        key = torch.arange(width, device=index.device)
        hidden = key > index[:, None]
        if self.window is not None:
            hidden |= key <= index[:, None] - self.window
        return logits.masked_fill_(hidden, -torch.inf).softmax(-1)

    def blocks(self, index: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (positions (r,), rows (H, r, M)) over the ascending queries ``index``, a bounded block at a time."""
        size = max(1, BLOCK_ELEMENTS // (self.heads * self.length))
        for block in index.split(size):
            yield block, self.rows(block)


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

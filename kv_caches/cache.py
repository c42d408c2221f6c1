"""One cache layer whose rows may leave: keeps true positions, so RoPE, masks and records stay right after eviction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from .merging import Merging, merged

EMPTY = -1  # position of a slot that pads a shorter row to the layer's longest


class EvictingLayer(DynamicLayer):
    """Keys and values of one layer, (B, G, S, d), with the true position of every slot.

    S is what is stored; :meth:`get_seq_length` answers what was *seen*, padding included, because transformers derives
    positions and mask sizes from it.

    Attributes:
        positions: (B, P, S) long; 0 is the sample's first real token, EMPTY marks a padding slot. P is 1 when all KV
            heads share one set of positions, else G.
        ragged: True when some slot is EMPTY, so attention needs a validity mask.
        rules: per sample, the method's decode rule at work, or None where nothing leaves while decoding.
    """

    def __init__(self, offsets: Tensor):
        """Args: offsets: (B,) number of left-padding tokens of each sample."""
        super().__init__()
        self.keys: Any  # a tensor as soon as the first tokens are in
        self.values: Any
        self.offsets = offsets
        self.seen = 0
        self.positions = torch.empty(0)
        self.ragged = bool((offsets > 0).any())
        self.rules: list[Any] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append new keys and values (B, G, n, d); returns everything stored."""
        first, new = not self.is_initialized, key_states.shape[-2]
        keys, values = super().update(key_states, value_states)
        seen = torch.arange(self.seen, self.seen + new, device=keys.device)
        fresh = (seen - self.offsets.to(keys.device)[:, None]).clamp(min=EMPTY)[:, None]  # (B, 1, n)
        if first:
            self.positions = fresh
        else:
            self.positions = torch.cat([self.positions, fresh.expand(-1, self.positions.shape[1], -1)], dim=-1)
        self.seen += new
        return keys, values

    def get_seq_length(self) -> int:
        """Number of tokens seen, padding included; not the number stored."""
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Mask over everything seen; the attention call replaces it by the layer's own validity when decoding."""
        return self.seen + query_length, 0

    def take(
        self, rows: Sequence[int], slots: list[list[Tensor]], merges: list[list[Merging] | None] | None = None
    ) -> EvictingLayer:
        """A new layer that holds copies of the given slots of the given samples; shorter rows are padded on the left.

        The copies are storage of their own: once this layer is dropped, nothing of it stays alive.

        Args:
            rows: (R,) samples of this layer's batch, repeats allowed.
            slots: per row, per set (1 or G), ascending slot indices.
            merges: per row and set, slots averaged into others before the copy, see :class:`kv_caches.merging.Merging`.
        """
        device, (_, kv_heads, _, dim) = self.keys.device, self.keys.shape
        table = _slot_table(slots, device)
        empty, table = table == EMPTY, table.clamp(min=0)
        new = EvictingLayer(self.offsets[list(rows)])
        new.seen, new.device, new.is_initialized = self.seen, device, True
        new.ragged = bool(empty.any())
        new.positions = self.positions[list(rows)].expand(-1, table.shape[1], -1).gather(-1, table)
        new.positions.masked_fill_(empty, EMPTY)
        for name in ("keys", "values"):
            target = self.keys.new_empty(len(rows), kv_heads, table.shape[-1], dim)
            for i, row in enumerate(rows):
                states = getattr(self, name)[row]
                if merges is not None and merges[i] is not None:
                    states = merged(states, merges[i])  # type: ignore[arg-type]
                torch.gather(states, 1, table[i, :, :, None].expand(kv_heads, -1, dim), out=target[i])
            setattr(new, name, target)
        return new

    def valid(self, window: int | None) -> Tensor | None:
        """(B, P, S) bool: slots the newest token may attend to, or None when it may attend to all."""
        if not self.ragged and window is None:
            return None
        mask = self.positions != EMPTY
        if window is not None:
            mask = mask & (self.positions > self.positions[..., -1:] - window)
        return mask

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Follow the beams."""
        super().reorder_cache(beam_idx)  # type: ignore[arg-type]
        self.batch_select_indices(beam_idx, rows_moved=True)

    def batch_select_indices(self, indices: Tensor, rows_moved: bool = False) -> None:
        """Keep the given samples of the batch."""
        if not rows_moved:
            super().batch_select_indices(indices)
        self.positions = self.positions[indices.to(self.positions.device)]
        self.offsets = self.offsets[indices.to(self.offsets.device)]
        if self.rules is not None:
            raise NotImplementedError("KV_DECODE=evict works with greedy decoding or sampling only, not with beams")

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every sample of the batch."""
        super().batch_repeat_interleave(repeats)
        self.positions = self.positions.repeat_interleave(repeats, dim=0)
        self.offsets = self.offsets.repeat_interleave(repeats, dim=0)


def _slot_table(slots: list[list[Tensor]], device: torch.device) -> Tensor:
    """(R, P, K) slot indices, padded on the left with EMPTY; rows that share one set follow those that do not."""
    sets = max(len(row) for row in slots)
    longest = max(index.numel() for row in slots for index in row)
    table = torch.full((len(slots), sets, longest), EMPTY, device=device)
    for lines, row in zip(table, slots):
        for line, index in zip(lines, row if len(row) == sets else row * sets):
            line[longest - index.numel() :] = index.to(device)
    return table

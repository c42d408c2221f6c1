"""A cache layer whose rows, or heads, hold unequally many entries, stored one after another: nothing is padded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from . import decode_kernel
from .cache import EvictingLayer, frozen, merged_rows, write_tokens
from .merging import Merging


class PackedLayer(EvictingLayer):
    """Keys and values are (T, d): one part after another, each with room behind it for generated tokens.

    A part holds what one row (all its G KV heads) or one KV head of one row keeps: (g, entries + room, d). Rows that
    share one set with others that do not are split into their heads too.
    """

    def __init__(self, offsets: Tensor):
        super().__init__(offsets)
        self._parts: list[tuple[Tensor, Tensor]] = []  # keys and values of each, views into the storage
        self._lengths: list[int] = []  # entries of each when it was stored
        self._stored_at = 0  # tokens seen then
        self._spare = 0  # tokens that fit behind them
        self._starts = self._held_then = torch.empty(0)  # (B * G,) first slot and entries of every KV head

    @classmethod
    def of(
        cls,
        layer: EvictingLayer,
        rows: Sequence[int],
        slots: list[list[Tensor]],
        merges: list[list[Merging] | None] | None = None,
    ) -> PackedLayer:
        """Copies of the given slots of the given samples; see :meth:`EvictingLayer.take`."""
        new = cls(layer.offsets[list(rows)])
        layer.describe(new, rows, slots)
        sets = max(map(len, slots))
        every = [row if len(row) == sets else row * sets for row in slots]

        def parts(states: Tensor) -> Iterable[Tensor]:
            for source, row in zip(merged_rows(states, rows, merges), every):
                for heads, index in zip(source.chunk(sets), row):
                    yield heads[:, index.to(heads.device)]

        lengths = [index.numel() for row in every for index in row]
        new._store(layer.keys.shape[1] // sets, lengths, parts(layer.keys), parts(layer.values))
        return new

    def _store(
        self, heads: int, lengths: list[int], keys: Iterable[Tensor], values: Iterable[Tensor], room: int = 0
    ) -> None:
        """Storage for parts of ``heads`` KV heads each, with room behind every one."""
        sizes = [heads * (length + room) for length in lengths]
        storage, views = [], []
        for parts in (keys, values):
            flat, found = None, []
            for part, length, size, end in zip(parts, lengths, sizes, accumulate(sizes)):
                if flat is None:
                    flat = part.new_empty(sum(sizes), part.shape[-1])
                view = flat[end - size : end].view(heads, length + room, -1)
                view[:, :length] = part
                found.append(view)
            storage.append(flat)
            views.append(found)
        self.keys, self.values = storage
        self._parts, self._lengths = list(zip(*views)), lengths
        self._stored_at, self._spare = self.seen, room
        device = self.keys.device
        steps = torch.arange(heads) * (torch.tensor(lengths)[:, None] + room)
        self._starts = (torch.tensor([0, *accumulate(sizes)][:-1])[:, None] + steps).flatten().to(device)
        self._held_then = torch.tensor(lengths).repeat_interleave(heads).to(device)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append one token (B, G, 1, d) to every row and head; returns it, :meth:`attend` reads the rest itself."""
        if not self.room_left() or frozen(self.keys):
            self._restore(range(self.offsets.shape[0]), self.chunk + 1)
        _, _, starts, held, _ = self.segments()
        write_tokens(self.keys, self.values, starts + held, key_states, value_states)
        self.seen += 1
        return key_states, value_states

    def room_left(self) -> int:
        """Tokens that fit behind what is stored."""
        return self._spare - (self.seen - self._stored_at)

    def advance(self) -> None:
        """One more token was written behind what is stored, by a recorded step."""
        self.seen += 1

    def segments(self) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
        """See :meth:`EvictingLayer.segments`."""
        held = self._held_then + (self.seen - self._stored_at)
        return self.keys, self.values, self._starts, held, max(self._lengths) + self._spare

    def _restore(self, rows: Sequence[int], room: int) -> None:
        """Store the entries of the given rows anew."""
        per_row, since = len(self._parts) // self.offsets.shape[0], self.seen - self._stored_at
        chosen = [row * per_row + i for row in rows for i in range(per_row)]
        lengths = [self._lengths[i] + since for i in chosen]
        keys = (self._parts[i][0][:, :length] for i, length in zip(chosen, lengths))
        values = (self._parts[i][1][:, :length] for i, length in zip(chosen, lengths))
        self._store(self._parts[0][0].shape[0], lengths, keys, values, room)

    def attend(self, call: Callable, module: Any, query: Tensor, kwargs: dict[str, Any]) -> tuple[Tensor, Any]:
        """Attention of the newest token: one kernel for all parts where there is one, else SDPA part by part."""
        batch, heads, _, dim = query.shape
        window, scaling = kwargs.get("sliding_window"), kwargs.get("scaling")
        per = heads * batch // self._starts.numel()
        if window is None and decode_kernel.usable(query.device, query.dtype, dim, per):
            output = decode_kernel.attend(query.reshape(-1, per, dim), *self.segments(), scaling or dim**-0.5)
            return output.reshape(batch, 1, heads, dim), None
        queries = query.reshape(len(self._parts), -1, per, dim).split(1)
        since = self.seen - self._stored_at
        masks = self._masks(window, since) if window is not None else [None] * len(queries)
        outputs = [
            scaled_dot_product_attention(q, k[None, :, : n + since], v[None, :, : n + since], mask, scale=scaling)
            for q, (k, v), n, mask in zip(queries, self._parts, self._lengths, masks)
        ]
        return torch.cat(outputs).reshape(batch, 1, heads, dim), None

    def _masks(self, window: int, since: int) -> list[Tensor]:
        positions = self.positions
        inside = (positions > positions[..., -1:] - window).flatten(0, 1)
        return [line[None, -n - since :] for line, n in zip(inside, self._lengths)]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickled tensors share no storage; the parts must lie in the keys and values again."""
        self.__dict__.update(state)
        heads = self._parts[0][0].shape[0]
        sizes = [heads * (length + self._spare) for length in self._lengths]
        keys, values = (
            [part.view(heads, -1, part.shape[-1]) for part in flat.split(sizes)] for flat in (self.keys, self.values)
        )
        self._parts = list(zip(keys, values))

    def row_bytes(self, row: int) -> int:
        """Bytes that one row's keys and values take."""
        per_row = len(self._parts) // self.offsets.shape[0]
        parts = self._parts[row * per_row : (row + 1) * per_row]
        return sum(keys.nbytes + values.nbytes for keys, values in parts)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the given samples of the batch."""
        indices = torch.arange(self.offsets.shape[0])[indices.cpu()]  # of a mask, too
        self._restore(indices.tolist(), self.room_left())
        self.offsets, self._held = self.offsets[indices.cpu()], self._held[indices.cpu()]
        if self.deltas is not None:
            self.deltas = self.deltas[indices.to(self.deltas.device)]
        if self._chosen is not None:
            self._chosen = self._chosen[indices.to(self._chosen.device)]

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every sample of the batch."""
        self.batch_select_indices(torch.arange(self.offsets.shape[0]).repeat_interleave(repeats))


def packable(layer: EvictingLayer, slots: list[list[Tensor]], padding: int, per: int) -> bool:
    """Whether rows or heads are unequal by more than ``padding`` bytes per row, where a kernel reads them packed.

    ``per`` query heads read each KV head.
    """
    sets = max(map(len, slots))
    lengths = [index.numel() for row in slots for index in row for _ in range(sets // len(row))]
    empty = len(lengths) * max(lengths) - sum(lengths)
    _, kv_heads, _, dim = layer.keys.shape
    entry = 2 * kv_heads // sets * dim * layer.keys.element_size()
    if empty * entry <= padding * len(slots):
        return False
    return layer.keys.is_cpu or decode_kernel.usable(layer.keys.device, layer.keys.dtype, dim, per)

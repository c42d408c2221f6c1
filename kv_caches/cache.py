"""One cache layer whose rows may leave: keeps true positions, so RoPE, masks and records stay right after eviction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import DynamicLayer

from . import kernels
from .errors import UnsupportedError
from .merging import Merging, merged

EMPTY = -1  # position of a slot that pads a shorter row to the layer's longest
ROOM = 128  # slots added to a layer's storage when generated tokens fill it


class EvictingLayer(DynamicLayer):
    """Keys and values of one layer, (B, G, S, d), with the true position of every slot.

    S is what is stored; :meth:`get_seq_length` answers what was *seen*, padding included, because transformers derives
    positions and mask sizes from it. While decoding, keys and values are views into storage with room for more tokens,
    so a step copies its own token only.

    Attributes:
        deltas: (B, 1) distance of M-RoPE positions from tokens behind the prompt, see calls.py; None in other models.
        chunk: tokens that fit behind what is stored whenever it is stored anew.
        ragged: True when some slot is EMPTY, so attention needs a validity mask.
        rules: per sample, the method's decode rule at work, or None where nothing leaves while decoding.
    """

    def __init__(self, offsets: Tensor):
        """Args: offsets: (B,) number of left-padding tokens of each sample."""
        super().__init__()
        self.keys: Any  # a tensor as soon as the first tokens are in
        self.values: Any
        self.offsets = offsets
        self.deltas: Tensor | None = None
        self.seen = 0
        self.chunk = ROOM
        self.ragged = bool((offsets > 0).any())
        self.rules: list[Any] | None = None
        self._chosen: Tensor | None = None  # (B, P, K) positions of the first K slots; tokens in sequence follow
        self._chosen_at = 0  # tokens seen when they were chosen
        self._held = -offsets.cpu().double()  # (B,) entries among the first slots, mean over KV heads
        self._room: tuple[Tensor, Tensor] | None = None  # storage that keys and values are views into
        self._valid: Tensor | None = None  # (B, P, room) bool, the same for `valid`

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append new keys and values (B, G, n, d); returns everything stored."""
        new = key_states.shape[-2]
        self.seen += new
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states.contiguous(), value_states.contiguous()
            return self.keys, self.values
        stored = self.keys.shape[-2]
        if self._room is None or self._room[0].shape[-2] < stored + new or frozen(self.keys):
            self._room = _with_room(self.keys, new + self.chunk), _with_room(self.values, new + self.chunk)
        for room, fresh in zip(self._room, (key_states, value_states)):
            room[:, :, stored : stored + new] = fresh
        self._place(stored + new, *self._room)
        return self.keys, self.values

    def room_left(self) -> int:
        """Tokens that fit behind what is stored."""
        return 0 if self._room is None else self._room[0].shape[-2] - self.keys.shape[-2]

    def advance(self) -> None:
        """One more token was written behind what is stored, by a recorded step."""
        self.seen += 1
        self._place(self.keys.shape[-2] + 1, *self._room)  # type: ignore[misc]

    def segments(self) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
        """Storage as one list of slots, and what every KV head of every row holds of it.

        Returns:
            keys and values (T, d); (B * G,) first slots and numbers of entries; the most that one may come to hold.
        """
        keys, values = self._room or (self.keys, self.values)
        batch, kv_heads, slots, dim = keys.shape
        empty = (self.positions == EMPTY).sum(-1).expand(batch, kv_heads).flatten()
        starts = torch.arange(batch * kv_heads, device=keys.device) * slots + empty
        return keys.view(-1, dim), values.view(-1, dim), starts, self.keys.shape[-2] - empty, slots

    @property
    def positions(self) -> Tensor:
        """(B, P, S) long; 0 is the sample's first real token, EMPTY marks a padding slot. P is 1 when all KV heads
        share one set of positions, else G."""
        device = self.keys.device
        since = torch.arange(self._chosen_at, self.seen, device=device)
        fresh = (since - self.offsets.to(device)[:, None]).clamp(min=EMPTY)[:, None]  # (B, 1, n)
        if self._chosen is None:
            return fresh
        return torch.cat([self._chosen, fresh.expand(-1, self._chosen.shape[1], -1)], dim=-1)

    def held(self) -> Tensor:
        """(B,) entries that each sample has in this layer, the mean over KV heads; on the CPU, from shapes alone."""
        return self._held + (self.seen - self._chosen_at)

    def get_seq_length(self) -> int:
        """Number of tokens seen, padding included; not the number stored."""
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Mask over everything seen; the attention call replaces it by the layer's own validity when decoding."""
        return self.seen + query_length, 0

    def take(
        self,
        rows: Sequence[int],
        slots: list[list[Tensor]],
        merges: list[list[Merging] | None] | None = None,
        room: int = 0,
    ) -> EvictingLayer:
        """A new layer that holds copies of the given slots of the given samples; shorter rows are padded on the left.

        The copies are storage of their own: once this layer is dropped, nothing of it stays alive.

        Args:
            rows: (R,) samples of this layer's batch, repeats allowed.
            slots: per row, per set (1 or G), ascending slot indices.
            merges: per row and set, slots averaged into others before the copy, see :class:`kv_caches.merging.Merging`.
            room: tokens that will fit behind the copies without another one.
        """
        new = EvictingLayer(self.offsets[list(rows)])
        table = self.describe(new, rows, slots).clamp(min=0)
        (_, kv_heads, _, dim), kept, storage = self.keys.shape, table.shape[-1], []
        for states in (self.keys, self.values):
            target = states.new_empty(len(rows), kv_heads, kept + room, dim)
            for i, source in enumerate(merged_rows(states, rows, merges)):
                index = table[i, :, :, None].expand(kv_heads, -1, dim)
                torch.gather(source, 1, index, out=target[i, :, :kept])
            storage.append(target)
        new._place(kept, *storage)
        return new

    def describe(self, new: EvictingLayer, rows: Sequence[int], slots: list[list[Tensor]]) -> Tensor:
        """Tell a layer that gets copies of these slots what they are; returns them as (R, P, K), padded with EMPTY."""
        table = _slot_table(slots, self.keys.device)
        empty = table == EMPTY
        new.seen, new.device, new.is_initialized = self.seen, self.keys.device, True
        new.deltas = None if self.deltas is None else self.deltas[list(rows)]
        new.ragged = bool(empty.any())
        chosen = self.positions[list(rows)].expand(-1, table.shape[1], -1).gather(-1, table.clamp(min=0))
        new._chosen, new._chosen_at = chosen.masked_fill_(empty, EMPTY), self.seen
        new._held = torch.tensor([sum(one.numel() for one in sets) / len(sets) for sets in slots]).double()
        return table

    def attend(self, call: Callable, module: Any, query: Tensor, kwargs: dict[str, Any]) -> tuple[Tensor, Any]:
        """Attention of the newest token over what is stored.

        Args:
            call: the model's own kernel. query: (B, H, 1, d).

        Returns:
            (B, 1, H, d), and weights where the kernel returns them.
        """
        visible = self.valid(kwargs.get("sliding_window"))
        return kernels.attend_newest(call, module, query, self.keys, self.values, visible, kwargs)

    def row_bytes(self, row: int) -> int:
        """Bytes that one row's keys and values take, with room, and padding to the longest row."""
        return self.nbytes // self.offsets.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the storage of keys and values, room and padding included."""
        return self.keys.untyped_storage().nbytes() + self.values.untyped_storage().nbytes()

    def _place(self, stored: int, keys: Tensor, values: Tensor) -> None:
        """Keys and values are the first ``stored`` slots of this storage."""
        self._room = keys, values
        self.keys, self.values = keys[:, :, :stored], values[:, :, :stored]

    def valid(self, window: int | None) -> Tensor | None:
        """(B, P, S) bool: slots the newest token may attend to, or None when it may attend to all."""
        if window is not None:
            positions = self.positions
            return (positions != EMPTY) & (positions > positions[..., -1:] - window)
        if not self.ragged:
            return None
        stored = self.keys.shape[-2]
        if self._valid is None or self._valid.shape[-1] < stored:  # what is generated is never padding
            self._valid = pad(self.positions != EMPTY, (0, ROOM), value=True)
        return self._valid[..., :stored]

    def crop(self, tokens_to_remove: int) -> None:
        """Entries that left cannot come back.

        Raises:
            UnsupportedError: always, if anything is to be removed.
        """
        if tokens_to_remove:
            raise UnsupportedError("an evicted cache cannot be cropped; start from an empty one")

    def reset(self) -> None:
        """See :meth:`crop`."""
        raise UnsupportedError("an evicted cache cannot be reset; start from an empty one")

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Follow the beams."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the given samples of the batch."""
        self._for_each_tensor(lambda tensor: tensor[indices.to(tensor.device)])

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every sample of the batch."""
        self._for_each_tensor(lambda tensor: tensor.repeat_interleave(repeats, dim=0))

    def _for_each_tensor(self, change: Callable[[Tensor], Tensor]) -> None:
        if self.rules is not None:
            raise NotImplementedError("KV_DECODE=evict works with greedy decoding or sampling only, not with beams")
        self.offsets, self._held, self._valid = change(self.offsets), change(self._held), None
        if self.deltas is not None:
            self.deltas = change(self.deltas)
        if self._chosen is not None:
            self._chosen = change(self._chosen)
        if self.is_initialized:
            self._place(self.keys.shape[-2], *map(change, self._room or (self.keys, self.values)))


def merged_rows(states: Tensor, rows: Sequence[int], merges: list[list[Merging] | None] | None) -> Iterator[Tensor]:
    """Keys or values (G, S, d) of each row, with what leaves merged into what stays where asked for."""
    for i, row in enumerate(rows):
        merge = merges[i] if merges is not None else None
        yield states[row] if merge is None else merged(states[row], merge)


def write_tokens(keys: Tensor, values: Tensor, slots: Tensor, key_states: Tensor, value_states: Tensor) -> None:
    """Write one token (B, G, 1, d) of every row and KV head into slots (B * G,) of storage (T, d)."""
    for flat, states in ((keys, key_states), (values, value_states)):
        flat.index_copy_(0, slots, states.reshape(-1, states.shape[-1]))


def frozen(states: Tensor) -> bool:
    """Whether it was made in inference mode and cannot be written here."""
    return states.is_inference() and not torch.is_inference_mode_enabled()


def _with_room(states: Tensor, room: int) -> Tensor:
    """A copy (B, G, S + room, d) whose first S slots are filled."""
    batch, kv_heads, stored, dim = states.shape
    target = states.new_empty(batch, kv_heads, stored + room, dim)
    target[:, :, :stored] = states
    return target


def _slot_table(slots: list[list[Tensor]], device: torch.device) -> Tensor:
    """(R, P, K) slot indices, padded on the left with EMPTY; rows that share one set follow those that do not."""
    sets = max(len(row) for row in slots)
    longest = max(index.numel() for row in slots for index in row)
    table = torch.full((len(slots), sets, longest), EMPTY, device=device)
    for lines, row in zip(table, slots):
        for line, index in zip(lines, row if len(row) == sets else row * sets):
            line[longest - index.numel() :] = index.to(device)
    return table

"""From a prefilled batch to the batch that decodes: which samples, evicted how, with which proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .attention import newest_row
from .cache import EMPTY, ROOM, EvictingLayer
from .config import KVConfig
from .errors import ReleasedCodeError, UnsupportedError
from .merging import Merging
from .method import DecodeRule, Method, Selection
from .packed import PackedLayer, packable
from .records import eviction_record, kept_positions
from .statistics import PrefillStats, not_finite


@dataclass
class Row:
    """One sample evicted as one configuration says. ``sample`` is its row in the prefilled batch."""

    sample: int
    config: KVConfig
    method: Method
    stats: PrefillStats
    selection: Selection

    @classmethod
    def of(cls, sample: int, config: KVConfig, method: Method, stats: PrefillStats) -> Row:
        """Let the method choose what stays."""
        return cls(sample, config, method, stats, method.select(stats, config.retention))

    @classmethod
    def begin(cls, sample: int, config: KVConfig, method: Method, stats: PrefillStats) -> Row:
        """For a method that chooses layer by layer, see :meth:`choose`."""
        return cls(sample, config, method, stats, method.begin(stats, config.retention))

    def choose(self, index: int) -> None:
        """Let the method choose what stays in the next layer, unless it has."""
        if len(self.selection.kept) == index:
            self.method.choose(self.selection, self.stats, self.config.retention, index)

    def keeps_all(self, index: int) -> bool:
        """Whether nothing leaves a layer."""
        return all(kept.numel() == self.stats.prompt.length for kept in self.selection.kept[index])

    def evict_from(self, layer: EvictingLayer, index: int) -> tuple[list[Tensor], list[Merging] | None]:
        """Slots that stay in a layer of the prompt's cache, and for each set of them who is merged into whom."""
        offset, sets, merge = int(layer.offsets[self.sample]), self.selection.kept[index], self.method.merge
        slots = [positions + offset for positions in sets]
        if merge is None or self.selection.official_broke:
            return slots, None
        keys = layer.keys[self.sample, :, offset:]
        parts = keys.split(keys.shape[0] // len(sets))
        merges = [merge.merge(kept, part, self.stats.prompt) for kept, part in zip(sets, parts)]
        return slots, [merging.shifted(offset) for merging in merges]


@dataclass
class RuleAtWork:
    """A method's decode rule on one sample in one layer; ``sets`` is 1 when its heads share one set of slots, also in a
    batch where other rows have a set per head."""

    sets: int
    rule: DecodeRule
    state: Any
    record: dict[str, Any]


def replaced(layer: EvictingLayer, index: int, rows: Sequence[Row]) -> EvictingLayer:
    """What takes the place of layer ``index`` when its prompt is not needed any more: itself if nothing leaves it."""
    return layer if all(row.keeps_all(index) for row in rows) else evicted(layer, index, rows)


def evicted(layer: EvictingLayer, index: int, rows: Sequence[Row], padding: int = 0) -> EvictingLayer:
    """Layer ``index`` of the decoding batch, copied out of the prompt's cache; unequal rows or heads are packed when
    more than ``padding`` bytes per row would be stored for nothing."""
    chosen = [row.evict_from(layer, index) for row in rows]
    samples, slots, merges = [row.sample for row in rows], [kept for kept, _ in chosen], [merge for _, merge in chosen]
    rules = any(row.config.decode == "evict" for row in rows)  # they rewrite slots, which must be in one table
    if not rules and packable(layer, slots, padding, rows[0].stats.heads // rows[0].stats.kv_heads):
        return PackedLayer.of(layer, samples, slots, merges)
    return layer.take(samples, slots, merges)


def records(cache: Any, rows: Sequence[Row], with_kept: bool = False) -> list[dict[str, Any]]:
    """Proof of eviction of every row; what happens while decoding is added to it, by decode rules and `note_step`.

    ``with_kept`` adds the positions that stayed, as `kept_positions` packs them.
    """
    layers, keys = cache.layers, cache.layers[0].keys
    entry = 2 * rows[0].stats.kv_heads * keys.shape[-1] * keys.element_size()
    allocated = [sum(layer.row_bytes(i) for layer in layers) for i in range(len(rows))]
    proofs = [
        eviction_record(row.config, row.stats.prompt, row.selection, entry, size) for row, size in zip(rows, allocated)
    ]
    if with_kept:
        for row, proof in zip(rows, proofs):
            proof["kept"] = kept_positions(row.stats.prompt, row.selection)
    if any(row.config.decode == "evict" for row in rows):
        for index, layer in enumerate(layers):
            layer.rules = [_rule(row, index, proof) for row, proof in zip(rows, proofs)]
    cache.kv_records = proofs
    return proofs


def note_step(cache: Any) -> None:
    """Add to every row's record what it holds after a decode step."""
    proofs = getattr(cache, "kv_records", None)
    if proofs is None:  # a prompt that is kept whole for forks
        return
    entries = torch.stack([layer.held() for layer in cache.layers]).sum(0).tolist()
    for record, held in zip(proofs, entries):
        record["entries_per_step"].append(held)


def _rule(row: Row, index: int, record: dict[str, Any]) -> RuleAtWork | None:
    rule = row.method.decode_rule
    if row.config.decode != "evict" or rule is None or row.selection.official_broke:
        return None
    kept = row.selection.kept[index]
    return RuleAtWork(len(kept), rule, rule.begin(row.stats, index, kept, row.config.retention), record)


@torch.no_grad()
def evict_step(layers: list[EvictingLayer], index: int, query: Tensor, scaling: float, window: int | None) -> None:
    """Let the decode rules of layer ``index`` drop slots after a step; ``query`` is (B, H, 1, d)."""
    layer, slots, changed = layers[index], [], False
    positions = layer.positions
    for row, work in enumerate(layer.rules or []):
        lines = positions[row][: None if work is None else work.sets]
        sets = [(line != EMPTY).nonzero().flatten() for line in lines]
        staying = None
        if work is not None:
            attention = _newest_rows(layer, row, sets, query[row, :, 0], scaling, window)
            if not all(bool(part.isfinite().all()) for part in attention):
                raise UnsupportedError(not_finite(index, "attention of a generated token"))
            try:
                staying = work.rule.evict(work.state, attention)
            except ReleasedCodeError:  # the released code died: nothing leaves from here on, and the record says so
                work.record["official_broke"] = True
                for other in layers:
                    other.rules[row] = None  # type: ignore[index]
        if staying is not None:
            sets, changed = [old[keep.to(old.device)] for old, keep in zip(sets, staying)], True
        slots.append(sets)
    if changed:
        layers[index] = layer.take(range(len(slots)), slots, room=ROOM)
        layers[index].rules = layer.rules


def _newest_rows(
    layer: EvictingLayer, row: int, sets: list[Tensor], query: Tensor, scaling: float, window: int | None
) -> list[Tensor]:
    """The newest query's attention per set of slots: [(H, S)] when heads share one set, else G x (H / G, S)."""
    valid, per_set = layer.valid(window), layer.keys.shape[1] // len(sets)
    queries = query.view(len(sets), -1, query.shape[-1])
    return [
        newest_row(
            queries[i],
            layer.keys[row, i * per_set : (i + 1) * per_set, index],
            scaling,
            None if valid is None else valid[row, i, index],
        )
        for i, index in enumerate(sets)
    ]

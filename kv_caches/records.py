"""Proof of eviction: what one sample's cache held before and after, in numbers."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from .config import KVConfig
from .method import Selection
from .prompt import Prompt


def eviction_record(
    config: KVConfig, prompt: Prompt, selection: Selection, entry: int, allocated: int
) -> dict[str, Any]:
    """One sample's record after eviction.

    Args:
        entry: bytes of one position in one layer. allocated: bytes of storage that exist for the sample.

    Bytes: ``kv_bytes_full`` is the prompt's K and V before eviction, ``kv_bytes_kept`` the entries that stayed,
    ``kv_bytes_allocated`` the storage that really exists for this sample, padding to the longest row included.
    ``entries_per_step``: entries held, summed over layers, now and, as generation goes on, after every decode step.
    """
    text, vision = [], []
    for sets in selection.kept:
        seen = [float(prompt.is_vision[kept.cpu()].sum()) for kept in sets]
        vision.append(sum(seen) / len(sets))
        text.append(sum(kept.numel() for kept in sets) / len(sets) - vision[-1])
    kept, full = sum(text) + sum(vision), prompt.length * len(selection.kept)
    return {
        "method": config.method,
        "variant": config.variant,
        "decode": config.decode,
        "prompt_tokens": prompt.length,
        "text_tokens": prompt.text.numel(),
        "vision_tokens": prompt.vision.numel(),
        "kept_text": text,
        "kept_vision": vision,
        "retention_nominal": config.retention,
        "retention_achieved": kept / full,
        "entries_per_step": [kept],
        "kv_bytes_full": full * entry,
        "kv_bytes_kept": round(kept * entry),
        "kv_bytes_allocated": allocated,
        "official_broke": selection.official_broke,
        "observation_window": selection.window,
    }


def kept_positions(prompt: Prompt, selection: Selection) -> dict[str, Any]:
    """Which prompt positions stayed, compactly.

    Returns:
        ``shape``: layers, sets per layer (1, or one per KV head), prompt tokens; ``bits``: that many booleans in this
        order, packed to bytes (first position highest), deflated, base64.
    """
    sets = max(map(len, selection.kept))
    stayed = np.zeros((len(selection.kept), sets, prompt.length), bool)
    for layer, kept in enumerate(selection.kept):
        for i in range(sets):
            stayed[layer, i, kept[i % len(kept)].cpu().numpy()] = True
    packed = zlib.compress(np.packbits(stayed).tobytes(), 9)
    return {"shape": list(stayed.shape), "bits": base64.b64encode(packed).decode()}


def entries_of_answer(entries: Sequence[float], generated: int) -> dict[str, Any]:
    """How one sample's cache grew while it was answered.

    Args:
        entries: ``entries_per_step`` of its record.
        generated: tokens of its answer. The last one is never fed back, and in a batch a shorter answer is followed by
            padding, which is not counted.

    Returns:
        ``start``, ``end``, ``max`` and ``mean`` in entries summed over layers, and the whole course as ``steps``: pairs
        of a change and how many steps in a row it happened.
    """
    entries = [_short(held) for held in entries[: max(1, generated)]]
    changes = groupby(_short(after - before) for before, after in pairwise(entries))
    return {
        "start": entries[0],
        "end": entries[-1],
        "max": max(entries),
        "mean": _short(sum(entries) / len(entries)),
        "steps": [[change, len(list(times))] for change, times in changes],
    }


def _short(number: float) -> float:
    return int(number) if number == int(number) else round(number, 3)

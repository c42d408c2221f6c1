"""Attention of one new token per row over keys of unequal length per (row, KV head), packed one after another.

The kernels are in `decode_triton`, which is imported only where it is used: builds of torch for the CPU have no Triton.
"""

from __future__ import annotations

import logging
import math
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

logger = logging.getLogger(__name__)

#: programs per multiprocessor that a launch aims for, so that one segment's latency hides behind others
PROGRAMS = 4
#: most slots one program walks, so that one long segment does not outlast all others
CHUNK = 2048
#: bytes of keys, and again of values, that a program reads at once
TILE = 16384
#: pipeline depth: at 2 a program takes 39 KB of shared memory (d = 128, half), so `PROGRAMS` fit a multiprocessor
STAGES = 2
#: largest difference from the reference that `usable` accepts
TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 2e-2}


def attend(
    query: Tensor, keys: Tensor, values: Tensor, starts: Tensor, lengths: Tensor, longest: int, scaling: float
) -> Tensor:
    """Attend from one token to each segment's valid slots, with Triton.

    The launch depends on shapes and ``longest`` only, never on the values of ``starts`` and ``lengths``: a captured
    CUDA graph stays right when they change in place.

    Args:
        query: (S, R, d), one segment per row of the batch and KV head, R query heads each.
        keys: (T, d) contiguous slots of all segments, in any order, gaps allowed.
        values: (T, d), like ``keys``.
        starts: (S,) int64, first slot of each segment.
        lengths: (S,) integer, valid slots of each segment, at least 1.
        longest: upper bound of ``lengths``.
        scaling: factor of the logits.

    Returns:
        (S, R, d) in the query's dtype; logits, softmax and sums are float32.

    Raises:
        ValueError: keys or values are not contiguous.
    """
    from .decode_triton import attend_chunk, combine_chunks

    if not (keys.is_contiguous() and values.is_contiguous()):
        raise ValueError("keys and values must be contiguous: the kernel addresses slots by their number")
    segments, per, dim = query.shape
    block, chunk, splits = _split(segments, dim, query.element_size(), longest, query.device)
    query, out = query.contiguous(), query.new_empty(query.shape)
    # with one split, what `attend_chunk` writes is the result
    parts = out if splits == 1 else query.new_empty((segments, splits, per, dim), dtype=torch.float32)
    masses = query.new_empty((segments, splits, per), dtype=torch.float32)
    width, rows = _power_of_two(dim), _power_of_two(per)
    if query.dtype != torch.float32:
        rows = max(16, rows)  # tensor cores take 16 rows or more; float32 does without them, for its precision
    sizes = {"PER": per, "DIM": dim, "WIDTH": width}
    scale, tensors = scaling * math.log2(math.e), (query, keys, values, starts, lengths, parts, masses)
    with torch.cuda.device_of(query):
        attend_chunk[(segments, splits)](
            *tensors, scale, chunk, splits, **sizes, ROWS=rows, BLOCK=block, num_stages=STAGES
        )
        if splits > 1:
            combine_chunks[(segments, per)](parts, masses, lengths, out, chunk, splits, **sizes, BLOCK=16)
    return out


def reference(
    query: Tensor, keys: Tensor, values: Tensor, starts: Tensor, lengths: Tensor, longest: int, scaling: float
) -> Tensor:
    """What `attend` computes, in plain torch on any device; shapes are static and the host never waits."""
    slots = torch.arange(longest, device=starts.device)
    valid = slots < lengths[:, None]
    # behind a segment's length its own first slot stands in: what lies there may not be a number
    slots = starts[:, None] + torch.where(valid, slots, 0)
    mask = valid[:, None, None]  # (S, 1, 1, longest)
    return F.scaled_dot_product_attention(
        query[:, None], keys[slots][:, None], values[slots][:, None], mask, scale=scaling
    )[:, 0]


@cache
def usable(device: torch.device, dtype: torch.dtype, dim: int, per: int) -> bool:
    """Whether `attend` runs on a device and agrees with `reference` there; a warning says why not.

    Call it before a CUDA graph is captured: it waits for the device, and it compiles all that calls with int64 lengths
    and aligned storages will need.

    Args:
        device: where the cache lies; never usable off CUDA.
        dtype: of the cache.
        dim: head size.
        per: query heads per KV head.
    """
    if device.type != "cuda":
        return False
    try:
        difference = _difference(device, dtype, dim, per)
        if difference <= TOLERANCES[dtype]:
            return True
        reason = f"it differs by {difference:.1e} from its reference"
    except Exception as error:  # whatever a compiler or driver raises: the reference still works
        reason = f"{type(error).__name__}: {error}"
    logger.warning("decode kernel not used on %s (%s, d = %d, R = %d): %s", device, dtype, dim, per, reason)
    return False


def _difference(device: torch.device, dtype: torch.dtype, dim: int, per: int) -> float:
    """Largest difference from the reference in float64 over unequal lengths with gaps, in one split and in several."""
    numbers = torch.Generator().manual_seed(0)
    query, keys, values = (
        torch.randn(shape, generator=numbers, device="cpu").to(device, dtype)
        for shape in ((4, per, dim), (700, dim), (700, dim))
    )
    starts = torch.tensor([400, 0, 396, 130], device=device)
    lengths = torch.tensor([257, 128, 1, 15], device=device)
    scaling = dim**-0.5
    worst = 0.0
    for longest in (300, 16):
        held = lengths.clamp(max=longest)
        ours = attend(query, keys, values, starts, held, longest, scaling)
        exact = reference(query.double(), keys.double(), values.double(), starts, held, longest, scaling)
        worst = max(worst, (ours - exact).abs().nan_to_num(nan=math.inf).max().item())
    return worst


def _split(segments: int, dim: int, size: int, longest: int, device: torch.device) -> tuple[int, int, int]:
    """Slots read at once, slots per split and number of splits; ``size`` is bytes per element."""
    block = max(16, min(128, TILE // (_power_of_two(dim) * size)))
    splits = max(_ceil(PROGRAMS * _processors(device), segments), _ceil(longest, CHUNK))
    chunk = _ceil(_ceil(longest, splits), block) * block
    return block, chunk, _ceil(longest, chunk)


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 132


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _ceil(count: int, part: int) -> int:
    return -(-count // part)

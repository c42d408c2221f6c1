"""Triton kernels of `decode_kernel.attend`: flash decoding over segments of packed keys and values.

Imported only where Triton is used. Offsets that can pass 2^31 elements are formed in int64 from the segment's start;
what is added within a block is small. Sources: online softmax of FlashAttention-2 (arXiv 2307.08691), split of the
key axis of Flash-Decoding (pytorch.org/blog/flash-decoding).
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["splits"], do_not_specialize_on_alignment=["starts", "lengths"])
def attend_chunk(
    query,  # (S, R, d)
    keys,  # (T, d)
    values,  # (T, d)
    starts,  # (S,)
    lengths,  # (S,)
    parts,  # (S, splits, R, d): attention within the chunk
    masses,  # (S, splits, R) float32: log2 of the chunk's sum of exponentials
    scale,  # of the logits, times log2(e)
    chunk,  # slots of a split, a multiple of BLOCK
    splits,
    PER: tl.constexpr,  # R
    DIM: tl.constexpr,  # d
    ROWS: tl.constexpr,  # R padded to what tl.dot takes
    WIDTH: tl.constexpr,  # d padded to a power of two
    BLOCK: tl.constexpr,  # slots read at once
):
    """One chunk of one segment, for all its query heads."""
    segment, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    length, start = tl.load(lengths + segment).to(tl.int32), tl.load(starts + segment).to(tl.int64)
    first = split * chunk
    if first >= length:
        return
    last = tl.minimum(first + chunk, length)
    row, slot, feature = tl.arange(0, ROWS), tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    stored = (row[:, None] < PER) & (feature[None, :] < DIM)
    q = tl.load(query + segment * PER * DIM + row[:, None] * DIM + feature[None, :], mask=stored, other=0.0)
    peak = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, WIDTH), tl.float32)
    tile = slot[:, None] * DIM + feature[None, :]
    for begin in range(first, last, BLOCK):
        valid = begin + slot < last
        read = valid[:, None] & (feature[None, :] < DIM)
        offset = (start + begin) * DIM
        k = tl.load(keys + offset + tile, mask=read, other=0.0)
        v = tl.load(values + offset + tile, mask=read, other=0.0)
        logits = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        logits = tl.where(valid[None, :], logits, float("-inf"))
        raised = tl.maximum(peak, tl.max(logits, 1))
        weights, fade = tl.exp2(logits - raised[:, None]), tl.exp2(peak - raised)
        total = total * fade + tl.sum(weights, 1)
        mixed = tl.dot(weights.to(v.dtype), v, mixed * fade[:, None], input_precision="ieee")
        peak = raised
    part = (segment * splits + split) * PER
    tl.store(parts + part * DIM + row[:, None] * DIM + feature[None, :], mixed / total[:, None], mask=stored)
    tl.store(masses + part + row, peak + tl.log2(total), mask=row < PER)


@triton.jit(do_not_specialize=["splits"], do_not_specialize_on_alignment=["lengths"])
def combine_chunks(
    parts,  # (S, splits, R, d)
    masses,  # (S, splits, R)
    lengths,  # (S,)
    out,  # (S, R, d)
    chunk,
    splits,
    PER: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,  # splits read at once
):
    """The mean of one query head's chunks, weighted by their masses; chunks behind the length were never written."""
    segment, row = tl.program_id(0).to(tl.int64), tl.program_id(1)
    filled = tl.cdiv(tl.load(lengths + segment).to(tl.int32), chunk)
    feature = tl.arange(0, WIDTH)
    peak, total = float("-inf"), 0.0
    mixed = tl.zeros((WIDTH,), tl.float32)
    for begin in range(0, filled, BLOCK):
        split = begin + tl.arange(0, BLOCK)
        part = (segment * splits + split) * PER + row
        mass = tl.load(masses + part, mask=split < filled, other=float("-inf"))
        stored = (split[:, None] < filled) & (feature[None, :] < DIM)
        attended = tl.load(parts + part[:, None] * DIM + feature[None, :], mask=stored, other=0.0)
        raised = tl.maximum(peak, tl.max(mass, 0))
        weights, fade = tl.exp2(mass - raised), tl.exp2(peak - raised)
        total = total * fade + tl.sum(weights, 0)
        mixed = mixed * fade + tl.sum(weights[:, None] * attended, 0)
        peak = raised
    tl.store(out + (segment * PER + row) * DIM + feature, mixed / total, mask=feature < DIM)

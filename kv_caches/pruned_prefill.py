"""Attention of a prompt whose pruned tokens nobody sees: the model's own kernel over the survivors of each sample.

Hidden states keep their full width: a pruned token's row is carried on but never looked at, so the result for every
survivor is that of dropping it, and only the work of its feed-forward layers is not saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .errors import UnsupportedError
from .rows import Row


def survivors(rows: Sequence[Row], index: int, width: int) -> list[Tensor] | None:
    """Slots that each sample's tokens see in layer ``index`` of a prompt padded to ``width``; None when all see all.

    Chosen before the layer runs, from what the layers before it measured.
    """
    for row in rows:
        row.choose(index)
    if all(row.keeps_all(index) for row in rows):
        return None
    return [row.selection.kept[index][0] + width - row.stats.prompt.length for row in rows]


@torch.no_grad()
def attend_among(
    call: Callable, slots: Sequence[Tensor], query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attention (B, N, H, d) among the given slots of each row, causal as before; the other slots get zeros.

    Args:
        call: the model's own kernel. slots: per row, ascending.
        query: (B, H, N, d) and key, value: (B, G, N, d), positions already in them.
        mask: (B or 1, 1, N, N), (B, N) with 0 on padding, or None.

    Raises:
        UnsupportedError: a mask that cannot be narrowed to the slots.
    """
    window, width = kwargs.get("sliding_window"), key.shape[2]
    if not (mask is None or isinstance(mask, Tensor)):
        raise UnsupportedError(f"a mask of type {type(mask).__name__} cannot be narrowed to some tokens; use sdpa")
    if window is not None and window < width and (mask is None or mask.dim() == 2):
        raise UnsupportedError("this kernel counts a sliding window in tokens that are left; use sdpa or eager")
    kwargs.pop("position_ids", None)  # flash kernels would look for packed sequences in them
    batch, heads, _, _ = query.shape
    output = query.new_zeros(batch, width, heads, value.shape[-1])
    for row, index in enumerate(slots):
        index = index.to(query.device)
        parts = (states[row : row + 1, :, index] for states in (query, key, value))
        among = None
        if mask is not None and mask.dim() == 4:
            among = mask[min(row, mask.shape[0] - 1), :, index][..., index][None]
        output[row, index] = call(*parts, among, **kwargs)[0][0]
    return output, None

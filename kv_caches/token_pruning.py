"""Which vision tokens VisionZip keeps, and which it merges into them: a selection only.

VisionZip prunes before the language model sees a prompt. Running a model on what is left is not done here, so it is no
value of KV_CACHE_TYPE. FastV, which prunes inside the prefill, is: see kv_caches/methods/fastv.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .retention import top_by_tier


class Zipped(NamedTuple):
    """What VisionZip hands to the language model.

    Attributes:
        hidden: (D + C, F) dominant tokens in the order of their positions, then the contextual ones.
        dominant: (D,) their positions. anchors: (C,) positions the contextual tokens grew from.
        joined: (R,) remaining positions. into: (R,) the anchor each was merged into.
    """

    hidden: Tensor
    dominant: Tensor
    anchors: Tensor
    joined: Tensor
    into: Tensor


def visionzip(
    attention: Tensor, keys: Tensor, hidden: Tensor, dominant: int, contextual: int, cls: bool = True
) -> Zipped:
    """The vision tower's most attended tokens, and a few that stand for the rest.

    Yang et al., "VisionZip: Longer is Better but Not Necessary in Vision Language Models", CVPR 2025; checked against
    dvlab-research/VisionZip visionzip/clip_encoder.py. Dominant tokens are those the class token attends to most (all
    tokens on average where there is none). Of the others, every floor(rest / C)-th is an anchor; each remaining one
    joins the anchor with the most similar key. An anchor becomes itself plus the mean of those that joined it: a sum,
    as released.

    Args:
        attention: (H, P, P) of the tower's last but one layer. keys: (P, d) its keys, mean over heads.
        hidden: (P, F) its output. dominant: patches that stay besides the class token. contextual: C.
        cls: token 0 is a class token; it always stays.
    """
    first = int(cls)
    looks = attention[:, 0, 1:].sum(0) if cls else attention.mean((0, 1))
    best = top_by_tier(looks, None, dominant) + first
    best = torch.cat([torch.zeros(first, dtype=best.dtype, device=best.device), best])
    others = torch.ones(len(hidden), dtype=torch.bool, device=best.device)
    others[best] = False
    rest = others.nonzero().flatten()
    chosen = torch.arange(0, len(rest), max(1, len(rest) // max(1, contextual)), device=best.device)[:contextual]
    others[rest[chosen]] = False
    anchors, joined = rest[chosen], others.nonzero().flatten()
    directions = F.normalize(keys.float(), dim=-1)
    if not len(anchors):
        return Zipped(hidden[best], best, anchors, joined[:0], joined[:0])
    slots = (directions[joined] @ directions[anchors].T).argmax(-1)
    sums = torch.zeros_like(hidden[anchors]).index_add(0, slots, hidden[joined])
    counts = torch.bincount(slots, minlength=len(anchors)).clamp(min=1)[:, None]
    return Zipped(torch.cat([hidden[best], hidden[anchors] + sums / counts]), best, anchors, joined, anchors[slots])

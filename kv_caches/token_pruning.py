"""Token pruning: which vision tokens FastV and VisionZip keep.

Unlike eviction from the cache these change the prefill: pruned tokens are not seen by later layers (FastV) or by
the language model at all (VisionZip), so even the first answer token differs and no prefill can be shared. The two
functions here are the selections alone; running a model with them is not done yet, so neither is a value of
KV_CACHE_TYPE.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .prompt import Prompt
from .retention import top_by_tier


def fastv(last_row: Tensor, prompt: Prompt, keep: int) -> Tensor:
    """Positions that layers K..L-1 see: all text, and the vision tokens the last prompt token looks at most.

    Chen et al., "An Image is Worth 1/2 Tokens After Layer 2", ECCV 2024; checked against pkunlp-icler/FastV
    modeling_llama.py. Vision tokens of several images are ranked together; positions keep their ids.

    Args:
        last_row: (H, N) attention of the last token at layer K - 1.
        keep: vision tokens that stay, round((1 - rho) N_v).

    Returns:
        Ascending positions.
    """
    scores = last_row.float().mean(0)
    return top_by_tier(scores, (~prompt.is_vision).long(), prompt.text.numel() + keep)


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

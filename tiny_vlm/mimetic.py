"""First weights of the vision tower: attention that already looks along rows, along columns and at neighbours.

Positions are 2-D sines and cosines. A query of them matches a key of the same position shifted by (dr, dc), because
cos(w (r' - dr) - w r) is linear in the sine and cosine of r'. The weights stay free in training.
"""

import math

import torch
from torch import nn

from tiny_vlm.canvas import GRID

ROW, COLUMN, FREE = "row", "column", "free"
HEADS = (
    ((0, -1), (0, -2), (0, 1), (-1, 0)),
    ((0, -1), (0, 1), ROW, COLUMN),
    (ROW, COLUMN, (1, 0), FREE),
    (ROW, COLUMN, FREE, FREE),
)
SHARPNESS = 1.3


@torch.no_grad()
def initialise_tower(tower: nn.Module) -> None:
    """Sets position embeddings, patch projection, and query and key weights of a SigLIP tower."""
    embeddings = tower.embeddings
    embeddings.position_embedding.weight.copy_(positions(embeddings.position_embedding.weight.shape[1]))
    weight = embeddings.patch_embedding.weight
    weight.normal_(std=weight[0].numel() ** -0.5)
    for layer, kinds in zip(tower.encoder.layers, HEADS, strict=True):
        attention = layer.self_attn
        size = attention.head_dim
        for head, kind in enumerate(kinds):
            if kind != FREE:
                rows = slice(head * size, (head + 1) * size)
                query, key = _matching(kind, attention.q_proj.in_features, size)
                attention.q_proj.weight[rows] = query + 0.02 * torch.randn_like(query)
                attention.k_proj.weight[rows] = key + 0.02 * torch.randn_like(key)


def positions(size: int) -> torch.Tensor:
    """(576, size): sines then cosines of the row, then the same of the column."""
    angles = torch.arange(GRID)[:, None] * _frequencies(size // 4)
    axis = torch.cat([angles.sin(), angles.cos()], dim=1)  # (24, size / 2)
    rows = axis[:, None].expand(GRID, GRID, -1)
    columns = axis[None].expand(GRID, GRID, -1)
    return torch.cat([rows, columns], dim=2).reshape(GRID * GRID, size)


def _frequencies(count: int) -> torch.Tensor:
    return math.pi * (torch.arange(count) + 0.5) / count


def _matching(kind: str | tuple[int, int], inputs: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Query and key weights, (size, inputs) each, of one head."""
    query, key = torch.zeros(size, inputs), torch.zeros(size, inputs)
    quarter = inputs // 4
    axes = {ROW: [(0, 0)], COLUMN: [(1, 0)]}.get(kind) or [(0, kind[0]), (1, kind[1])]
    per_axis = size // 2 // len(axes)
    chosen = torch.arange(per_axis) * quarter // per_axis
    for place, (axis, shift) in enumerate(axes):
        turn = _frequencies(quarter)[chosen] * shift
        sine, cosine = 2 * axis * quarter + chosen, (2 * axis + 1) * quarter + chosen
        first = 2 * per_axis * place + torch.arange(per_axis)
        second = first + per_axis
        query[first, sine] = query[second, cosine] = SHARPNESS
        key[first, sine], key[first, cosine] = SHARPNESS * turn.cos(), -SHARPNESS * turn.sin()
        key[second, cosine], key[second, sine] = SHARPNESS * turn.cos(), SHARPNESS * turn.sin()
    return query, key

"""Stage 1: the vision tower learns what each cell shows.

Linear heads on the features that the language model gets are trained with it and thrown away afterwards.
"""

import time

import torch
from torch import nn
from torch.nn import functional as F
from transformers import Qwen3VLForConditionalGeneration

from tiny_vlm.optim import Optimizer
from tiny_vlm.stages import log
from tiny_vlm.video.batches import CellBatch, crowded_batches
from tiny_vlm.video.forward import cell_features
from tiny_vlm.video.render import CLASSES, LABELS
from tiny_vlm.video.stages import VisionStage

FEATURE_SIZE = 1.0
"""Root mean square of the features that the language model starts with."""


class CellHeads(nn.Module):
    """One linear classifier for each label of a cell, for each level of features."""

    def __init__(self, size: int, levels: int):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(levels))
        self.heads = nn.ModuleList(
            nn.ModuleList(nn.Linear(size, classes) for classes in CLASSES) for _ in range(levels)
        )

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        """Summed loss, and the share of right answers for each label at the last level.

        Args:
            features: (levels, B, N, D).
            labels: (B, N, 8), -1 where a cell has no such label.
        """
        loss = torch.zeros(())
        for level, norm, heads in zip(features, self.norms, self.heads, strict=True):
            level, right = norm(level), []
            for head, target in zip(heads, labels.unbind(-1), strict=True):
                logits, target = head(level[target >= 0]).float(), target[target >= 0]
                loss = loss + F.cross_entropy(logits, target)
                right.append((logits.argmax(-1) == target).float().mean().item())
        return loss, right


def train_vision(model: Qwen3VLForConditionalGeneration, stage: VisionStage) -> None:
    """Trains the tower of `model` in place."""
    tower = model.model.visual
    torch.manual_seed(stage.seed)
    heads = CellHeads(tower.config.out_hidden_size, 1 + len(tower.deepstack_visual_indexes))
    named = [*tower.named_parameters(), *(("head." + name, p) for name, p in heads.named_parameters())]
    named = [(name.replace("pos_embed", "embed"), p) for name, p in named]
    optimizer = Optimizer(named, stage.steps, stage.muon_lr, stage.adam_lr)
    features = torch.compile(cell_features, dynamic=False) if stage.compile else cell_features
    start = time.time()
    for step, batch in enumerate(crowded_batches(stage.pairs, stage.counts, stage.first, stage.steps)):
        loss, right = _loss(features, tower, heads, batch)
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step + 1 == stage.steps:
            shares = " ".join(f"{name} {100 * share:.1f}" for name, share in zip(LABELS, right, strict=True))
            log(f"{stage.name} step {step} loss {loss.item():.3f} {shares} time {time.time() - start:.0f} s")
    _rescale(tower, batch)


def _loss(features, tower: nn.Module, heads: CellHeads, batch: CellBatch) -> tuple[torch.Tensor, list[float]]:
    together = torch.zeros(1, 1, 1, dtype=torch.bool)
    with torch.autocast("cpu", torch.bfloat16):
        return heads(features(tower, batch.pixels, batch.cells, together), batch.labels)


@torch.no_grad()
def _rescale(tower: nn.Module, batch: CellBatch) -> None:
    """Scales the last layer of each merger so that its features have mean 0 and root mean square FEATURE_SIZE."""
    levels = cell_features(tower, batch.pixels, batch.cells, torch.zeros(1, 1, 1, dtype=torch.bool))
    for merger, level in zip((*tower.deepstack_merger_list, tower.merger), levels, strict=True):
        mean = level.mean((0, 1))
        scale = FEATURE_SIZE / (level - mean).square().mean().sqrt()
        merger.linear_fc2.weight.mul_(scale)
        merger.linear_fc2.bias.sub_(mean).mul_(scale)

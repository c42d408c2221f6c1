"""Stage 1: the vision tower learns what each patch shows and which key a value belongs to.

Linear heads on the patch features are trained with it and thrown away afterwards.
"""

import time

import torch
from torch import nn
from torch.nn import functional as F

from tiny_vlm.batches import PageBatch, page_batches
from tiny_vlm.canvas import CHARACTER_CLASSES, LABELS
from tiny_vlm.forward import patch_features
from tiny_vlm.optim import Optimizer
from tiny_vlm.pages import KEYS
from tiny_vlm.stages import VisionStage, log
from tiny_vlm.wording import COLOURS, SLOTS

CLASSES = (CHARACTER_CLASSES, len(KEYS), 4, len(COLOURS), 6, len(SLOTS))


class PatchHeads(nn.Module):
    """One linear classifier for each label of a patch."""

    def __init__(self, size: int):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.heads = nn.ModuleList(nn.Linear(size, classes) for classes in CLASSES)

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, list[float]]:
        """Summed loss, and the share of right answers for each label: features (B, N, D), labels (B, N, 6)."""
        features = self.norm(features)
        losses, right = [], []
        for head, target in zip(self.heads, labels.unbind(-1), strict=True):
            logits, target = head(features[target >= 0]).float(), target[target >= 0]
            losses.append(F.cross_entropy(logits, target))
            right.append((logits.argmax(-1) == target).float().mean().item())
        return torch.stack(losses).sum(), right


def train_vision(model: nn.Module, stage: VisionStage) -> None:
    """Trains the tower of `model` in place."""
    tower = model.model.vision_tower
    torch.manual_seed(stage.seed)
    heads = PatchHeads(tower.config.hidden_size)
    named = [*tower.named_parameters(), *(("head." + name, p) for name, p in heads.named_parameters())]
    optimizer = Optimizer(named, stage.steps, stage.muon_lr, stage.adam_lr)
    features = torch.compile(patch_features) if stage.compile else patch_features
    start = time.time()
    batches = page_batches(stage.kinds, stage.most, stage.patches, stage.first, stage.steps)
    for step, batch in enumerate(batches):
        loss, right = _loss(features, tower, heads, batch)
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step + 1 == stage.steps:
            shares = " ".join(f"{name} {100 * share:.1f}" for name, share in zip(LABELS, right, strict=True))
            log(f"{stage.name} step {step} loss {loss.item():.3f} {shares} time {time.time() - start:.0f} s")


def _loss(features, tower: nn.Module, heads: PatchHeads, batch: PageBatch) -> tuple[torch.Tensor, list[float]]:
    with torch.autocast("cpu", torch.bfloat16):
        return heads(features(tower, batch.pixels, batch.cells), batch.labels)

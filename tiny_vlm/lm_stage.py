"""Later stages: projector and language model learn to answer; the vision tower stays frozen.

While `supervision` is above zero, answer tokens are given two hints: one head of an early layer is pulled towards the
word of the question that says what to look for, and one head of a middle layer towards the patches that show the next
answer token. These are aids for training only: without them, look-up stays at chance for a long time.
"""

import time
from collections import defaultdict

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlavaForConditionalGeneration, PreTrainedTokenizerFast

from tiny_vlm.batches import PageBatch, page_batches
from tiny_vlm.forward import answer_hidden, llama_layer, patch_features
from tiny_vlm.optim import Optimizer
from tiny_vlm.sequences import IGNORED, SequenceBuilder, Sequences
from tiny_vlm.stages import LMStage, log

WATCHED_LAYERS = {"asked": 1, "evidence": 3}
"""Layers whose first head looks for what is asked, and for the evidence."""


def train_lm(model: LlavaForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, stage: LMStage) -> None:
    """Trains projector and language model in place."""
    torch.manual_seed(stage.seed)
    step_function = _Step(model, tokenizer, stage)
    named = [(name, p) for name, p in model.named_parameters() if "vision_tower" not in name]
    optimizer = Optimizer(named, stage.steps, stage.muon_lr, stage.adam_lr)
    start = time.time()
    batches = page_batches(stage.kinds, stage.most, stage.patches, stage.first, stage.steps)
    for step, batch in enumerate(batches):
        if step == 0 and stage.fit_projector:
            _fit_projector(model, step_function.tower_features(batch))
        step_function(batch, stage.supervision * min(1.0, 2 - 2 * step / stage.steps))
        optimizer.step()
        if step % 20 == 0 or step + 1 == stage.steps:
            log(f"{stage.name} step {step} {step_function.report()} time {time.time() - start:.0f} s")


class _Step:
    """Loss and gradients of one batch, in parts of similar length."""

    def __init__(self, model: LlavaForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, stage: LMStage):
        self.model = model
        self.builder = SequenceBuilder(tokenizer, stage.parts)
        self.seen = defaultdict(list)
        self.layer = torch.compile(llama_layer, dynamic=True) if stage.compile else llama_layer

    @torch.no_grad()
    def tower_features(self, batch: PageBatch) -> torch.Tensor:
        """(B, N, D_vision)."""
        with torch.autocast("cpu", torch.bfloat16):
            return patch_features(self.model.model.vision_tower, batch.pixels, batch.cells).float()

    def report(self) -> str:
        """Means since the last report: loss, attention where it is watched, and share of right answers by kind."""
        means = {name: sum(values) / len(values) for name, values in self.seen.items()}
        self.seen.clear()
        loss = means.pop("loss")
        return f"loss {loss:.3f} " + " ".join(f"{name} {100 * share:.1f}" for name, share in means.items())

    def __call__(self, batch: PageBatch, supervision: float) -> None:
        """Adds the gradients of a batch to the model."""
        features = self.tower_features(batch)
        parts = self.builder.build(batch)
        tokens = sum((part.targets != IGNORED).sum().item() for part in parts)
        total = 0.0
        right = torch.zeros(len(batch.pages), dtype=torch.bool)
        for part in parts:
            loss, attention, right[part.rows] = self._part(features[part.rows], part)
            aid = 0.0
            for name, weights, wanted in zip(WATCHED_LAYERS, attention, (part.asked, part.evidence), strict=True):
                share = (weights.float() * wanted).sum(-1)[wanted.any(-1)]
                aid = aid - (share + 1e-4).log().sum()
                self.seen[name] += share.tolist()
            ((loss + supervision * aid) / tokens).backward()
            total += loss.item() / tokens
        self.seen["loss"].append(total)
        for page, good in zip(batch.pages, right.tolist(), strict=True):
            self.seen[page.kind].append(good)

    def _part(self, features: torch.Tensor, part: Sequences) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
        """Summed loss, watched attention weights, and which pages are right."""
        with torch.autocast("cpu", torch.bfloat16):
            hidden, attention = answer_hidden(
                self.model.model, features, part.ids, part.positions, part.patch, WATCHED_LAYERS.values(), self.layer
            )
            predicted = part.targets != IGNORED
            logits = self.model.lm_head(hidden[predicted]).float()
        targets = part.targets[predicted]
        loss = F.cross_entropy(logits, targets, reduction="sum")
        wrong = torch.zeros_like(predicted)
        wrong[predicted] = logits.argmax(-1) != targets
        return loss, attention, ~wrong.any(-1)


@torch.no_grad()
def _fit_projector(model: LlavaForConditionalGeneration, features: torch.Tensor) -> None:
    """First weights of the projector: as if the features had mean 0 and variance 1."""
    mean, deviation = features.mean((0, 1)), features.std((0, 1))
    projector: nn.Module = model.model.multi_modal_projector
    first, second = projector.linear_1, projector.linear_2
    first.weight.normal_(std=first.in_features**-0.5).div_(deviation)
    first.bias.copy_(-first.weight @ mean)
    second.weight.normal_(std=0.5 * second.in_features**-0.5)

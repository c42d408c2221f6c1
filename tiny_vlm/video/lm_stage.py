"""Later stages: mergers and language model learn to answer; the rest of the vision tower stays frozen.

While `supervision` is above zero, some attention heads are given hints (`WATCHED`): vision tokens look at the time
stamp of their frames, a thing that appears looks at the one that appeared before it, and an option at its letter;
answer tokens look at the words of the question that say what to look for, at the vision tokens that show the next
word, and at the right option. These are aids for training only.
"""

import time
from collections import defaultdict

import torch
from torch.nn import functional as F
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration

from tiny_vlm.optim import Optimizer
from tiny_vlm.stages import log
from tiny_vlm.video.batches import VideoBatch, video_batches
from tiny_vlm.video.forward import answer_hidden, cell_features, decoder_layer
from tiny_vlm.video.sequences import IGNORED, SequenceBuilder, Sequences
from tiny_vlm.video.stages import LMStage
from tiny_vlm.video.world import CELLS, SECONDS

WATCHED = (
    ("stamp", 0, 0),
    ("previous", 2, 0),
    ("asked", 1, 1),
    ("evidence", 3, 0),
    ("evidence", 3, 1),
    ("letter", 2, 1),
    ("present", 3, 0),
    ("present", 3, 1),
    ("option", 4, 1),
)
"""Hints, with layer and place among `forward.WATCHED_HEADS` of the head that gets each."""

FIXED_WEIGHTS = {"stamp": 0.1, "previous": 0.1, "letter": 0.1, "present": 0.5}
"""Of each token that is given a hint; other hints weigh as much as the answer tokens they belong to."""

LETTER_LAYER = 2
"""Where the text of an option is taught to say its letter, so that later layers can read it there."""


def train_lm(model: Qwen3VLForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, stage: LMStage) -> None:
    """Trains the language model in place."""
    torch.manual_seed(stage.seed)
    step_function = Step(model, tokenizer, stage)
    optimizer = Optimizer(model.model.language_model.named_parameters(), stage.steps, stage.muon_lr, stage.adam_lr)
    start = time.time()
    batches = video_batches(stage.kinds, stage.styles, stage.tokens, stage.first, stage.steps)
    for step, batch in enumerate(batches):
        step_function(batch, stage.supervision * min(1.0, 2 - 2 * step / stage.steps))
        optimizer.step()
        if step % 20 == 0 or step + 1 == stage.steps:
            log(f"{stage.name} step {step} {step_function.report()} time {time.time() - start:.0f} s")


class Step:
    """Loss and gradients of one batch, in parts of similar length."""

    def __init__(self, model: Qwen3VLForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, stage: LMStage):
        self.model = model
        self.builder = SequenceBuilder(tokenizer, stage.parts)
        self.hints = stage.hints
        self.watched = [hint for hint in WATCHED if hint[0] in stage.hints]
        self.seen: dict[str, list[float]] = defaultdict(list)
        self.layer = torch.compile(decoder_layer, dynamic=True) if stage.compile else decoder_layer

    @torch.no_grad()
    def features(self, batch: VideoBatch) -> torch.Tensor:
        """(levels, B, N, D)."""
        pixels, tokens = batch.pixels, batch.tokens
        apart = tokens[:, :, None] // CELLS != tokens[:, None] // CELLS
        whole = tokens.shape[1] == SECONDS * CELLS
        if whole:  # one row for each second, which is cheaper than a mask
            pixels, tokens = (part.unflatten(1, (SECONDS, CELLS)).flatten(0, 1) for part in (pixels, tokens))
            apart = torch.zeros(1, 1, 1, dtype=torch.bool)
        with torch.autocast("cpu", torch.bfloat16):
            levels = cell_features(self.model.model.visual, pixels, tokens % CELLS, apart).float()
        return levels.unflatten(1, (-1, SECONDS)).flatten(2, 3) if whole else levels

    def report(self) -> str:
        """Means since the last report: loss, attention where it is watched, and share of right answers by topic."""
        means = {name: sum(values) / len(values) for name, values in self.seen.items() if values}
        self.seen.clear()
        loss = means.pop("loss")
        return f"loss {loss:.3f} " + " ".join(f"{name} {100 * means[name]:.0f}" for name in sorted(means))

    def __call__(self, batch: VideoBatch, supervision: float) -> None:
        """Adds the gradients of a batch to the model."""
        features = self.features(batch)
        parts = self.builder.build(batch)
        total = sum(part.weights.sum().item() for part in parts)
        loss = 0.0
        for part in parts:
            answers, aid, attention, right = self._part(features[:, part.rows], part)
            for name, layer, head in self.watched:
                share = (attention[layer][:, head].float() * part.hints[name]).sum(-1)
                wanted = part.hints[name].any(-1)
                fixed = FIXED_WEIGHTS.get(name)
                weights = torch.full(wanted.shape, fixed) if fixed else part.weights
                aid = aid - ((share[wanted] + 1e-4).log() * weights[wanted]).sum()
                self.seen[f"/{name}"] += share[wanted].tolist()
            ((answers + supervision * aid) / total).backward()
            loss += answers.item() / total
            for row, good in zip(part.rows.tolist(), right.tolist(), strict=True):
                mc = batch.styles[row] == "multiple_choice"
                self.seen[batch.asked[row].topic + (":mc" if mc else "")].append(good)
        self.seen["loss"].append(loss)

    def _part(
        self, features: torch.Tensor, part: Sequences
    ) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor], torch.Tensor]:
        """Weighted sum of losses, the aid for letters, watched attention weights, and which videos are right."""
        with torch.autocast("cpu", torch.bfloat16):
            language = self.model.model.language_model
            hidden, states, attention = answer_hidden(
                language, features, part.ids, part.positions, part.place, self.layer
            )
            predicted = part.targets != IGNORED
            logits = self.model.lm_head(hidden[predicted]).float()
            lettered = part.letters != IGNORED
            said = self.model.lm_head(language.norm(states[LETTER_LAYER][lettered])).float()
        targets = part.targets[predicted]
        loss = (F.cross_entropy(logits, targets, reduction="none") * part.weights[predicted]).sum()
        wrong = torch.zeros_like(predicted)
        wrong[predicted] = logits.argmax(-1) != targets
        self.seen["/says letter"] += (said.argmax(-1) == part.letters[lettered]).float().tolist()
        aid = F.cross_entropy(said, part.letters[lettered], reduction="sum") * FIXED_WEIGHTS["letter"]
        return loss, aid if "letter" in self.hints else torch.zeros(()), attention, ~wrong.any(-1)

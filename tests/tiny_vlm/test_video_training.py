"""Training passes on videos agree with the stock model, so what is trained is what is shipped."""

import pytest
import torch

from tiny_vlm.rng import Rng
from tiny_vlm.video.batches import crowded_batches, keep_tokens, video_batches
from tiny_vlm.video.data import KINDS, iter_samples, make_asked
from tiny_vlm.video.evaluate import encode
from tiny_vlm.video.forward import answer_hidden, decoder_layer
from tiny_vlm.video.lm_stage import Step, train_lm
from tiny_vlm.video.model import build_model
from tiny_vlm.video.processor import build_processor
from tiny_vlm.video.render import shown
from tiny_vlm.video.sequences import SequenceBuilder
from tiny_vlm.video.stages import ALL, PLAIN, LMStage, VisionStage
from tiny_vlm.video.vision_stage import FEATURE_SIZE, train_vision

WHOLE = 392
TINY = {"steps": 2, "first": 0, "muon_lr": 0.01, "adam_lr": 1e-3, "compile": False}


@pytest.fixture(scope="module")
def processor():
    return build_processor()


@pytest.fixture
def model(processor):
    return build_model(processor.tokenizer)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_with_all_tokens_training_gives_the_stock_ids_positions_and_logits(processor, model, kind):
    batch = next(video_batches({kind: 1}, PLAIN, WHOLE, first=0, steps=1))
    batch.styles = ["primary"]
    sequence = SequenceBuilder(processor.tokenizer).build(batch)[0]
    stage = LMStage("test", **TINY, tokens=WHOLE)
    with torch.autocast("cpu", enabled=False):
        features = float_features(Step(model, processor.tokenizer, stage), batch)
    language = model.model.language_model
    hidden, _, _ = answer_hidden(language, features, sequence.ids, sequence.positions, sequence.place, decoder_layer)
    inputs = encode(processor, list(iter_samples(kind, "train", 1)))
    length = inputs["input_ids"].shape[1]
    assert inputs["input_ids"][0].tolist() == sequence.ids[0, :length].tolist()
    positions, _ = model.model.get_rope_index(
        inputs["input_ids"], inputs["mm_token_type_ids"], video_grid_thw=inputs["video_grid_thw"]
    )
    assert torch.equal(positions, sequence.positions[:, :, :length])
    torch.testing.assert_close(model.lm_head(hidden[0, :length]), model(**inputs).logits[0], atol=1e-4, rtol=1e-4)


def float_features(step: Step, batch) -> torch.Tensor:
    """`Step.features` in float32."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "autocast", lambda *_: torch.no_grad())
        return step.features(batch)


@pytest.mark.parametrize("kind", KINDS)
def test_every_hint_points_at_what_it_says(processor, kind):
    batch = next(video_batches({kind: 12}, ALL, 28, first=0, steps=1))
    builder = SequenceBuilder(processor.tokenizer, parts=1)
    sequence = builder.build(batch)[0]
    assert (sequence.hints["stamp"].sum(-1) == (sequence.place >= 0)).all()
    for i, row in enumerate(sequence.rows.tolist()):
        asked, style = batch.asked[row], batch.styles[row]
        tokens = batch.tokens[row][sequence.place[i][sequence.hints["evidence"][i].any(0)]]
        assert set(tokens.tolist()) == {token for _, shown in asked.reply(style) for token in shown}
        option = sequence.ids[i][sequence.hints["option"][i].any(0)].tolist()
        right = asked.options[asked.correct] if style == "multiple_choice" else ""
        assert processor.tokenizer.decode(option) == right
        letters = sequence.ids[i][sequence.hints["letter"][i].any(0)].tolist()
        assert processor.tokenizer.decode(letters) == ("A B C D" if right else "")
        assert sequence.hints["previous"][i].sum() == len(asked.world.items) - 1


def test_kept_tokens_include_everything_that_is_shown():
    world = make_asked("describe", "train", 3).world
    kept = keep_tokens(world, 28, Rng("test"))
    assert len(kept) == 28
    assert set(shown(world)) <= set(kept.tolist())
    with pytest.raises(ValueError, match="only 2 may be kept"):
        keep_tokens(world, 2, Rng("test"))


def test_crowded_frames_are_labelled_with_what_they_show():
    batch = next(crowded_batches(4, (16,), first=0, steps=1))
    blank = batch.labels[..., 0] == 0
    spread = batch.pixels.std((-1, -2))
    assert spread[blank].max() < spread[~blank].min()


def test_a_vision_stage_changes_the_tower_only_and_leaves_features_of_the_wanted_size(processor, model):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    train_vision(model, VisionStage("vision", **TINY, pairs=4, counts=(8,)))
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed
    assert all(name.startswith("model.visual.") for name in changed)
    batch = next(crowded_batches(8, (8,), first=100, steps=1))
    features = model.model.visual.merger(torch.randn(32, 128))
    assert 0.1 * FEATURE_SIZE < features.square().mean().sqrt() < 10 * FEATURE_SIZE
    assert batch.pixels.shape == (8, 8, 4, 1536)


def test_an_lm_stage_changes_the_language_model_only_and_lowers_the_loss(processor, model, capsys):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    stage = LMStage("lm", **TINY | {"steps": 21}, tokens=28, kinds={"motion": 4}, supervision=1.0, parts=1)
    train_lm(model, processor.tokenizer, stage)
    losses = [float(line.split("loss ")[1].split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert losses[-1] < losses[0] - 0.5
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed
    assert not any(name.startswith("model.visual.") for name in changed)

"""Training passes agree with the stock model, so what is trained is what is shipped."""

import pytest
import torch
from PIL import Image

from tiny_vlm.batches import PATCHES, keep_cells, page_batches
from tiny_vlm.data import make_page
from tiny_vlm.evaluate import prompt
from tiny_vlm.forward import answer_hidden, llama_layer, patch_features
from tiny_vlm.model import build_model
from tiny_vlm.optim import orthogonal
from tiny_vlm.processor import build_processor
from tiny_vlm.rng import Rng
from tiny_vlm.sequences import SequenceBuilder

KINDS = {"document": 1, "caption": 1}
MOST = {"document": 10, "caption": 5}


@pytest.fixture(scope="module")
def processor():
    return build_processor()


@pytest.fixture(scope="module")
def model(processor):
    return build_model(processor.tokenizer)


@torch.no_grad()
def test_with_all_patches_training_gives_the_stock_logits(processor, model):
    batch = next(page_batches(KINDS, MOST, PATCHES, first=0, steps=1))
    builder = SequenceBuilder(processor.tokenizer, parts=1)
    builder.prefixes = builder.prefixes[:1] * 3
    sequences = builder.build(batch)[0]
    features = patch_features(model.model.vision_tower, batch.pixels, batch.cells)[sequences.rows]
    hidden, _ = answer_hidden(
        model.model, features, sequences.ids, sequences.positions, sequences.patch, (), llama_layer
    )
    for i, row in enumerate(sequences.rows):
        page = batch.pages[row]
        text = f"{prompt(processor, page.question)} {page.answer}"
        inputs = processor(text=[text], images=[Image.fromarray(page.canvas.pixels())], return_tensors="pt")
        length = inputs["input_ids"].shape[1]
        assert inputs["input_ids"][0].tolist() == sequences.ids[i, :length].tolist()
        # The causal mask of training is in bfloat16, the products are not: only zeros and infinities are rounded.
        torch.testing.assert_close(model.lm_head(hidden[i, :length]), model(**inputs).logits[0], atol=1e-3, rtol=1e-3)


def test_evidence_and_asked_words_are_marked_for_every_digit(processor):
    batch = next(page_batches({"document": 4}, MOST, 96, first=0, steps=1))
    for part in SequenceBuilder(processor.tokenizer, parts=2).build(batch):
        assert part.evidence.sum((1, 2)).tolist() == [4] * len(part.rows)
        assert part.asked.any(-1).sum(-1).tolist() == [4] * len(part.rows)
        marked = part.evidence.any(1)
        assert (part.patch[marked] >= 0).all()


def test_kept_patches_include_everything_that_is_written():
    page = make_page("document", "train", 3)
    kept = keep_cells(page, 96, Rng("test"))
    written = (page.canvas.labels[0].ravel() > 0).nonzero()[0]
    assert len(kept) == 96
    assert set(written) <= set(kept)
    with pytest.raises(ValueError, match="only 5 may be kept"):
        keep_cells(page, 5, Rng("test"))


def test_newton_schulz_makes_singular_values_about_one():
    torch.manual_seed(0)
    for shape in ((2, 64, 32), (2, 32, 64)):
        values = torch.linalg.svdvals(orthogonal(torch.randn(shape)).float())
        assert values.min() > 0.6
        assert values.max() < 1.3

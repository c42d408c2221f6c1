"""The generator: same pixels everywhere, disjoint splits, answers that the tokenizer can say."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from tiny_vlm.canvas import GRID
from tiny_vlm.data import KINDS, Sample, iter_samples, make_page, make_samples
from tiny_vlm.processor import build_tokenizer

EXPECTED = json.loads((Path(__file__).parent / "expected_hashes.json").read_text())


def digest(samples: list[Sample]) -> str:
    """SHA-256 over pixels, questions and answers."""
    total = hashlib.sha256()
    for sample in samples:
        total.update(np.asarray(sample.image).tobytes())
        total.update("\n".join((sample.id, sample.question, *sample.answers, *sample.objects)).encode())
    return total.hexdigest()


@pytest.mark.parametrize("kind", KINDS)
def test_first_test_samples_have_the_committed_hash(kind):
    assert digest(make_samples(kind, "test", 200)) == EXPECTED[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_samples_do_not_depend_on_how_many_are_made(kind):
    many, late = make_samples(kind, "test", 6), list(iter_samples(kind, "test", 2, start=4))
    assert digest(many[4:]) == digest(late)
    assert [sample.id for sample in late] == [f"{kind}-test-0004", f"{kind}-test-0005"]


@pytest.mark.parametrize("kind", KINDS)
def test_train_and_test_share_no_picture(kind):
    pictures = [
        {make_page(kind, split, i).canvas.pixels().tobytes() for i in range(100)} for split in ("train", "test")
    ]
    assert len(pictures[0]) == len(pictures[1]) == 100
    assert not pictures[0] & pictures[1]


def test_samples_follow_the_contract():
    for kind in KINDS:
        for sample in make_samples(kind, "test", 5):
            assert sample.image.size == (336, 336)
            assert sample.image.mode == "RGB"
            assert sample.question
            assert sample.answers
            assert bool(sample.objects) == (kind == "caption")


@pytest.mark.parametrize("kind", KINDS)
def test_answer_pieces_are_tokens_and_evidence_comes_after_the_first(kind):
    tokenizer = build_tokenizer()
    for i in range(50):
        page = make_page(kind, "test", i)
        assert tokenizer.tokenize(page.answer) == [text for text, _ in page.pieces]
        assert page.pieces[0][1] == []
        assert any(cells for _, cells in page.pieces[1:])


@pytest.mark.parametrize("kind", ["scene", "caption"])
def test_evidence_of_shapes_is_found_in_all_parts_of_the_picture(kind):
    cells = [cell for i in range(300) for _, shown in make_page(kind, "test", i).pieces for cell in shown]
    rows, columns = np.divmod(np.array(cells), GRID)
    for axis in (rows, columns):
        thirds = np.histogram(axis, bins=3, range=(0, GRID))[0] / len(cells)
        assert thirds.min() > 0.2


def test_question_lengths_vary():
    tokenizer = build_tokenizer()
    for kind in KINDS:
        lengths = [len(tokenizer.tokenize(make_page(kind, "test", i).question)) for i in range(200)]
        assert min(lengths) <= 7
        assert max(lengths) >= 40


def test_unknown_kind_or_split_is_refused_by_name():
    with pytest.raises(ValueError, match=r"'poster'.*document"):
        make_samples("poster", "test", 1)
    with pytest.raises(ValueError, match=r"'val'.*train"):
        make_samples("chart", "val", 1)

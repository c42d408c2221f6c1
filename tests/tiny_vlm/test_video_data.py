"""The generator of videos: same pixels everywhere, disjoint splits, questions in all styles."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from tiny_vlm.video.data import KINDS, VideoSample, iter_samples, make_asked, make_samples
from tiny_vlm.video.processor import build_tokenizer
from tiny_vlm.video.questions import LETTERS, STYLES
from tiny_vlm.video.render import shown, tile
from tiny_vlm.video.world import CELL, CELLS, GRID, SECONDS

EXPECTED = json.loads((Path(__file__).parent / "expected_video_hashes.json").read_text())


def digest(samples: list[VideoSample]) -> str:
    """SHA-256 over pixels, questions and answers."""
    total = hashlib.sha256()
    for sample in samples:
        total.update(sample.frames.tobytes())
        texts = (sample.question, sample.paraphrase, sample.wrong_leading, sample.correct_leading)
        total.update("\n".join((sample.id, *texts, sample.multiple_choice, *sample.answers)).encode())
    return total.hexdigest()


@pytest.mark.parametrize("kind", KINDS)
def test_first_test_videos_have_the_committed_hash(kind):
    assert digest(make_samples(kind, "test", 40)) == EXPECTED[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_videos_do_not_depend_on_how_many_are_made(kind):
    many, late = make_samples(kind, "test", 5), list(iter_samples(kind, "test", 2, start=3))
    assert digest(many[3:]) == digest(late)


@pytest.mark.parametrize("kind", KINDS)
def test_train_and_test_share_no_video(kind):
    videos = [{s.frames.tobytes() for s in make_samples(kind, split, 30)} for split in ("train", "test")]
    assert len(videos[0]) == len(videos[1]) == 30
    assert not videos[0] & videos[1]


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_four_different_options_and_a_right_one(kind):
    for sample in make_samples(kind, "test", 30):
        assert sample.frames.shape == (16, 224, 224, 3)
        assert sample.frames.dtype == np.uint8
        assert sample.fps == 2.0
        assert len(set(sample.options)) == 4
        assert sample.answers[0] == sample.answer
        assert sample.options[sample.correct].removeprefix("a ") in sample.answer


@pytest.mark.parametrize("kind", KINDS)
def test_leads_suggest_what_they_say_and_only_multiple_choice_lists_options(kind):
    for sample in make_samples(kind, "test", 30):
        right = sample.options[sample.correct].removeprefix("a ")
        lead = sample.correct_leading.removesuffix(sample.question)
        assert right in lead
        assert right not in sample.wrong_leading.removesuffix(sample.question)
        assert sample.wrong_leading.endswith(sample.question)
        assert sample.paraphrase != sample.question
        listed = [f"{letter}. {text}" for letter, text in zip(LETTERS, sample.options, strict=True)]
        assert sample.multiple_choice == " ".join([sample.question, *listed])


@pytest.mark.parametrize("kind", KINDS)
def test_answer_pieces_are_tokens_and_the_first_shows_nothing(kind):
    tokenizer = build_tokenizer()
    for i in range(50):
        asked = make_asked(kind, "test", i)
        for style in STYLES:
            pieces = asked.reply(style)
            assert tokenizer.tokenize(asked.reply_text(style)) == [text for text, _ in pieces]
            assert pieces[0][1] == []
            assert "<unk>" not in tokenizer.tokenize(asked.text(style))
            assert tokenizer.decode(tokenizer.encode(asked.reply_text(style))) == asked.reply_text(style)


def test_descriptions_are_long():
    tokenizer = build_tokenizer()
    lengths = [len(tokenizer.tokenize(make_asked("describe", "test", i).answer)) for i in range(100)]
    assert min(lengths) >= 30
    assert 80 <= max(lengths) <= 100


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_cells_are_exactly_those_that_show_something(kind):
    for i in range(5):
        world = make_asked(kind, "test", i).world
        sample = next(iter_samples(kind, "test", 1, start=i))
        cells = sample.frames.reshape(SECONDS, 2, GRID, CELL, GRID, CELL, 3).transpose(0, 2, 4, 1, 3, 5, 6)
        drawn = (cells.reshape(SECONDS * CELLS, -1, 3) != np.array(world.paper, dtype=np.uint8)).any((1, 2))
        assert set(np.flatnonzero(drawn)) == set(shown(world))


def test_things_appear_in_the_second_frame_of_their_first_second():
    for i in range(5):
        world = make_asked("order", "test", i).world
        frames = next(iter_samples("order", "test", 1, start=i)).frames
        for item in world.items:
            row, column = (slice(part * CELL, (part + 1) * CELL) for part in item.cells[0])
            before, after = frames[2 * item.start : 2 * item.start + 2, row, column]
            assert (before == world.paper).all()
            assert (after != world.paper).any()


def test_a_mover_is_ahead_in_the_second_frame_of_a_second():
    for i in range(5):
        asked = make_asked("motion", "test", i)
        item = next(item for item in asked.world.items if item.direction)
        first, second = tile(asked.world, item, item.start + 1).astype(int)
        axis = 0 if item.direction in ("up", "down") else 1
        step = 6 if item.direction in ("down", "right") else -6
        assert (np.roll(first, step, axis) == second).all()


def test_unknown_kind_or_split_is_refused_by_name():
    with pytest.raises(ValueError, match=r"'poster'.*moment"):
        make_samples("poster", "test", 1)
    with pytest.raises(ValueError, match=r"'val'.*train"):
        make_samples("order", "val", 1)

"""Prompts that ask nothing, or more than the model can read: failed with a reason, alone and from a shared prefill."""

import io

import pytest
from PIL import Image

from . import grid, toy

CONTEXT = 4096  # of the tiny checkpoint
FRAME = 13  # tokens of its chat template
SMALL = "retention: [0.1]\nmethods: [full, tgv_kv, streaming_llm]\n"
EMPTY = "PromptError: the prompt is empty: neither text nor a picture"


class Unreadable(list):
    """Pictures of a document that are opened when they are asked for."""

    def __iter__(self):
        return iter([Image.open(path) for path in super().__iter__()])


@pytest.fixture(params=["alone", "shared"])
def asked(request, checkpoint, environment, monkeypatch):
    """Asks the documents; returns records by document."""
    if request.param == "shared":
        path = environment.with_name("sweep.yaml")
        path.write_text(SMALL)
        monkeypatch.setenv("KV_SWEEP", str(path))
    for name, value in grid.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)

    def run(docs, kind="chat", tokens=4):
        model = toy.wrapper(checkpoint("llava"), kind, environment, batch_size=2)
        toy.ask(model, toy.ToyTask(docs), toy.GREEDY | {"max_new_tokens": tokens})
        found = {}
        for record in toy.records(environment):
            found.setdefault(record["doc_id"], []).append(record)
        assert {len(records) for records in found.values()} == {1 if request.param == "alone" else 3}
        return found

    return run


def outcomes(found):
    return {doc: {(record["status"], record["error"]) for record in records} for doc, records in found.items()}


@pytest.mark.parametrize("kind", ["chat", "simple"])
def test_a_prompt_without_text_and_picture_fails_and_a_picture_alone_is_answered(kind, asked):
    pictures = [toy.picture(0)]
    docs = [
        {"text": " \n", "images": []},
        {"text": "", "images": pictures},
        {"text": "colour?", "images": []},
        {"text": "colour?", "images": pictures},
    ]
    ok = {("ok", None)}
    assert outcomes(asked(docs, kind)) == {0: {("failed", EMPTY)}, 1: ok, 2: ok, 3: ok}


def test_a_prompt_longer_than_the_context_fails_without_the_others(asked, capsys):
    docs = [*toy.documents()[:2], {"text": "a" * CONTEXT, "images": []}]
    found = asked(docs)
    length = CONTEXT + FRAME
    error = f"PromptError: the prompt has {length} tokens, but the model's context is {CONTEXT}"
    assert outcomes(found) == {0: {("ok", None)}, 1: {("ok", None)}, 2: {("failed", error)}}
    said = [line for line in capsys.readouterr().out.splitlines() if "toy/2 failed" in line]
    assert len(said) == 1
    assert said[0].endswith(error)


def test_a_file_that_is_no_picture_or_is_cut_off_fails(asked, tmp_path):
    file = io.BytesIO()
    toy.picture(5).save(file, "PNG")
    cut = Image.open(io.BytesIO(file.getvalue()[: len(file.getvalue()) // 2]))
    path = tmp_path / "picture.png"
    path.write_bytes(b"no picture")
    found = outcomes(asked([{"text": "colour?", "images": images} for images in ([cut], Unreadable([path]))]))
    cut_off = {("failed", "OSError: image file is truncated")}
    assert found == {0: cut_off, 1: {("failed", f"UnidentifiedImageError: cannot identify image file '{path}'")}}


@pytest.mark.parametrize("room", [1, 3])
def test_an_answer_ends_where_the_context_does(room, asked):
    text = "a" * (CONTEXT - FRAME - room)
    found = asked([{"text": text, "images": []}, {"text": "b", "images": []}], tokens=5)
    assert {(record["stop_reason"], record["generated_tokens"]) for record in found[0]} == {("context", room)}
    assert {(record["stop_reason"], record["generated_tokens"]) for record in found[1]} == {("length", 5)}


def test_stock_behaviour_knows_no_limit(checkpoint, environment):
    docs = [{"text": "", "images": []}, {"text": "a" * CONTEXT, "images": []}]
    toy.ask(toy.wrapper(checkpoint("llava"), store=environment), toy.ToyTask(docs))
    assert [record["status"] for record in toy.records(environment)] == ["ok", "ok"]

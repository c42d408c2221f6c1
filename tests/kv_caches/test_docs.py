"""The example of docs/add-a-method.md runs as it is printed, inside a model."""

import re
import sys
import types
from pathlib import Path

import pytest
import torch

from kv_caches import KVConfig, attach, registry
from tests.models import build
from tests.prompts import inputs

from .support import prompt_of, random_stats

PAGE = Path(__file__).parents[2] / "docs" / "add-a-method.md"


@pytest.fixture
def example(monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert 20 <= len(code.splitlines()) <= 75
    module = types.ModuleType("question_first")
    monkeypatch.setitem(sys.modules, "question_first", module)
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
    monkeypatch.setitem(registry._BUILT_IN, "question_first", "question_first")
    return module


def test_the_example_evicts_inside_a_model(example):
    model = build("llava")
    batch = inputs(model, "image", "text")
    for variant in example.VARIANTS:
        with attach(model, KVConfig("question first", 0.3, variant)) as attachment:
            model.generate(**batch, max_new_tokens=3, do_sample=False)
            records = attachment.take_records()
        for record, kept in zip(records, attachment.kept):
            n = record["prompt_tokens"]
            assert sum(layer[0].numel() for layer in kept) == int(0.3 * n * 4 + 1e-9)
            assert all(n - 1 in layer[0] for layer in kept)


def test_the_example_looks_at_the_question_only(example):
    method = example.build("no_sinks")
    stats = random_stats(prompt_of("TTT" + "V" * 10 + "TT" + "V" * 10 + "TTT"), method.needs)
    received = stats.get(example.ROWS, 0)
    assert torch.allclose(received.sum(), torch.tensor(3.0))


def test_the_page_names_things_that_exist():
    text = PAGE.read_text()
    root = PAGE.parents[1]
    for path in set(re.findall(r"`((?:kv_caches|tests)/[\w/]+\.\w+)`", text)) - {"kv_caches/methods/question_first.py"}:
        assert (root / path).is_file(), path
    for module, names in {
        "statistics": ("ColumnSums", "LastRow", "WindowRows", "TextGrounding", "Received"),
        "budgets": ("Uniform", "water_fill"),
        "scorers": ("HeadMean", "GroupMean", "Measured", "WindowVotes", "Recency", "Random"),
    }.items():
        source = (root / "kv_caches" / f"{module}.py").read_text()
        for name in names:
            assert f"`{name}`" in text
            assert re.search(rf"(class|def) {name}\b", source)

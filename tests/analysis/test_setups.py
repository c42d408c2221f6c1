"""Runs of one configuration in several ways have rows of their own, named by what tells them apart."""

import pytest

from analysis import tables
from analysis.runs import load
from analysis.table import score_table

from .test_by_hand import told, write_by_hand
from .test_table import rewrite, write

TGV = {"method": "tgv_kv", "retention": 0.1}


@pytest.mark.parametrize(
    ("more", "config", "words"),
    [
        ({"wrapper": "simple"}, {}, ("chat prompts", "simple prompts")),
        (
            {"model": "elsewhere/llava-1.5-7b-hf"},
            {},
            ("llava-hf/llava-1.5-7b-hf@main", "elsewhere/llava-1.5-7b-hf@main"),
        ),
        ({}, {"max_new_tokens": 4}, ("at most 0 new tokens", "at most 4 new tokens")),
    ],
)
def test_runs_with_other_settings_have_rows_of_their_own(more, config, words, tmp_path):
    for number, score in enumerate((0.8, 0.4)):
        for method, known, factor in (("full", {}, 1), ("tgv", TGV, 0.5)):
            write(tmp_path, f"{method}{number}", score * factor, **known, **(config if number else {}))
            own = {"fingerprint": f"v1-{method}{number}", "full_fingerprint": f"v1-full{number}"}
            path = tmp_path / f"{method}{number}" / "result.mini_scene.json"
            rewrite(path, **own, **(more if number else {}))
    table = score_table(load(tmp_path).scores)
    models = [f"llava-7B [{word}]" for word in words]
    assert set(zip(table["model"], table["method"], table["scene"])) == {
        (models[0], "full", "80.0 (100 %)"),
        (models[0], "tgv_kv", "40.0 (50 %)"),
        (models[1], "full", "40.0 (100 %)"),
        (models[1], "tgv_kv", "20.0 (50 %)"),
    }
    written = tmp_path / "tables"
    tables.write(load(tmp_path), written)
    assert all(path.parent == written for path in written.rglob("*.csv"))
    assert len(list(written.glob("other-*.csv")) + list(written.glob("table2-*.csv"))) == 2


def test_of_runs_with_one_fingerprint_the_newest_counts_and_the_other_is_named(tmp_path):
    write_by_hand(tmp_path, "v1-0", 0.8)
    write_by_hand(tmp_path, "v1-0", 0.5)
    for number, docs in ((0, range(8)), (1, range(3))):
        kv = {"fingerprint": "v1-0", "records": "", "tasks": {"mini_scene": told(docs, 1.0)}}
        rewrite(tmp_path / "run" / "model" / f"{number}_results.json", kv=kv)
    found = load(tmp_path / "run")
    assert found.scores["samples"].tolist() == [3]
    (line,) = found.refused
    assert "0_results.json: 8 samples of mini_scene, left out: " in line
    assert line.endswith("1_results.json is newer, with 3")

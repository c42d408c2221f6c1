"""The paper's tables from result files, compared with committed ones.

After a wanted change: python -m tests.analysis.test_tables
"""

import json
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

from analysis.errors import ResultsError
from analysis.runs import load
from analysis.tables import main, tables, write

HERE = Path(__file__).parent
FIXTURE, GOLDEN = HERE / "fixture", HERE / "golden"
FOLDERS = sorted(FIXTURE.iterdir())


def make(folder: Path) -> None:
    texts, left_out = write(load(FOLDERS, allow_failures=True, allow_unjudged=True), folder)
    (folder / "terminal.txt").write_text("\n\n".join(texts) + "\n\n" + "\n".join(left_out) + "\n")


def test_every_table_is_as_committed_in_every_format(tmp_path):
    make(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in GOLDEN.iterdir()}


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("llava", r"snapkv-0.95/result.chartqa.json: 2 samples failed.*--allow-failures"),
        ("next", r"h2o-0.95/result.textvqa_val.json: fingerprint v1-0{16} is not that of .*--allow-failures"),
        ("video", r"snapkv-0.90/result.videott_no_leading_oe.json: 10 answers are unjudged.*--allow-unjudged"),
    ],
)
def test_what_cannot_be_trusted_is_refused_by_name(folder, message):
    with pytest.raises(ResultsError, match=message):
        load(FIXTURE / folder)


def test_a_result_file_of_an_unknown_version_is_refused_by_name(tmp_path, capsys):
    shutil.copytree(FIXTURE / "next" / "pyramid_kv-0.95", tmp_path / "pyramid_kv-0.95")
    shutil.copytree(FIXTURE / "next" / "full", tmp_path / "full")
    assert main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "pyramid_kv-0.95/result.vizwiz_vqa_val.json: version 9 of a result file is unknown" in error
    assert error.count("\n") == 1
    assert main([str(tmp_path), "--allow-failures"]) == 0
    assert "version 9" in capsys.readouterr().err


def test_a_broken_result_file_is_refused_by_name(tmp_path):
    path = tmp_path / "full" / "result.chartqa.json"
    path.parent.mkdir()
    for text, message in (('{"schema": 1, "task"', "is not readable"), ('{"schema": 1}', "'metrics' is missing")):
        path.write_text(text)
        with pytest.raises(ResultsError, match=f"result.chartqa.json.*{message}"):
            load(tmp_path)


def test_records_of_another_fingerprint_are_refused_by_name(tmp_path):
    from analysis.records import records_of

    source = next((FIXTURE / "llava" / "records").iterdir())
    shutil.copytree(source, tmp_path / "v1-1111111111111111")
    with pytest.raises(ResultsError, match=r"records.rank0.jsonl:1: record of another configuration"):
        records_of(tmp_path / "v1-1111111111111111")


def cell(model, name, retention, task):
    results = load(FOLDERS, allow_failures=True, allow_unjudged=True)
    for table in tables(results):
        for row, cells in zip(table.layout.rows, table.cells):
            if (table.layout.model, row.name, row.retention) == (model, name, retention) and task in table.layout.tasks:
                return cells[table.layout.tasks.index(task)]
    raise AssertionError("no such cell")


def test_missing_cells_say_why():
    assert cell("llava-7B", "tgv_kv", 0.1, "textvqa_val_lite").reason == "not run"
    assert cell("llava-7B", "random_text_first (plain)", 0.05, "chartqa").reason == "failed 3"
    assert cell("qwen-8B", "snapkv", 0.1, "videott_no_leading_oe").reason == "unjudged 10"
    assert cell("llava-next", "h2o", 0.05, "textvqa_val").reason == "other fingerprint"


def test_a_share_needs_the_full_cache_with_the_same_settings():
    found = cell("llava-next", "streaming_llm", 0.05, "vizwiz_vqa_val")
    assert (found.share, found.mismatch) == (None, "other dtype")


def test_a_star_stands_where_the_interval_excludes_the_full_cache_only():
    assert cell("llava-7B", "tgv_kv", 0.05, "chartqa").differs is True
    assert cell("llava-7B", "tgv_kv", 0.1, "chartqa").differs is False
    assert cell("llava-next", "h2o", 0.05, "vizwiz_vqa_val").differs is None


def test_the_best_of_a_budget_is_bold_and_the_full_cache_no_rival():
    text = (GOLDEN / "table2-llava-next.tex").read_text()
    assert r"\textbf{59.8 (98.7 \%)" in text
    assert r"\underline{50.0" in text
    assert r"\textbf{60.6" not in text


def test_numbers_of_the_csv_are_those_of_the_results():
    table = pd.read_csv(GOLDEN / "table2-llava-7B.csv").set_index(["configuration", "retention", "task"])
    row = table.loc[("snapkv", 0.05, "textvqa_val_lite")]
    content = json.loads((FIXTURE / "llava" / "snapkv-0.95" / "result.textvqa_val_lite.json").read_text())
    assert row["score"] == 100 * content["metrics"]["exact_match,none"]
    assert row["achieved"] == 5.25


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    GOLDEN.mkdir()
    make(GOLDEN)
    sys.exit(0)

"""The judge command on files that are damaged or of another kind: one line, before anything is asked."""

import json
import os

import pytest

from lmms_eval_plugins.judge import __main__ as command
from lmms_eval_plugins.judge.scoring import METRIC

ENTRY = {"question": "What is it?", "answer": "a cat", "prediction": "cat", "judge": "none"}
JUDGED = {"judged": 1, "unjudged": 0}
SCORES = {"results": {"t": {"alias": "t", f"{METRIC},none": None}}}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("KV_JUDGE", "exact")
    monkeypatch.setenv("KV_RECORDS_DIR", str(tmp_path / "records"))
    folder = tmp_path / "full" / "model"
    folder.mkdir(parents=True)
    (folder / "2026_results.json").write_text(json.dumps(SCORES))
    (folder / "2026_samples_t.jsonl").write_text(json.dumps({"doc_id": 0, METRIC: ENTRY}) + "\n")
    result = {"config": None, "metrics": {}, "counts": {"samples": 1, "failed": 0}, "lmms_eval_date": "2026"}
    (folder.parent / "result.t.json").write_text(json.dumps(result))
    return folder


def line_of(run, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main([str(run.parents[1])])
    assert stopped.value.code == 1
    return capsys.readouterr().err


def test_a_run_without_eviction_is_judged_too(run):
    assert command.main([str(run.parents[1])]) == 0
    assert json.loads((run.parent / "result.t.json").read_text())["counts"] == {"samples": 1, "failed": 0} | JUDGED
    assert json.loads((run / "2026_results.json").read_text())["results"]["t"][f"{METRIC},none"] == 100.0


@pytest.mark.parametrize(
    "line",
    [
        '{"doc_id": 1, "v',
        '{"doc_id": 1}',
        "null",
        "[1]",
        json.dumps({METRIC: ENTRY}),
        json.dumps({"doc_id": 1, METRIC: {"answer": "a"}}),
        json.dumps({"doc_id": 1, METRIC: ENTRY | {"prediction": None}}),
        json.dumps({"doc_id": 1, METRIC: ENTRY | {"answers": 5}}),
    ],
)
def test_a_damaged_sample_is_named_with_its_line(run, capsys, line):
    path = run / "2026_samples_t.jsonl"
    path.write_text(path.read_text() + line)
    error = line_of(run, capsys)
    assert error.startswith(f"error: {path}:2")
    assert error.count("\n") == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"results": {}}', '{"metrics": {}, "counts": {}}'])
@pytest.mark.parametrize("name", ["model/2026_results.json", "result.t.json"])
def test_a_damaged_result_is_named_and_left_as_it_is(run, capsys, name, text):
    path = run.parent / name
    path.write_text(text)
    assert line_of(run, capsys).startswith(f"error: {path}: damaged, or no result of t")
    assert path.read_text() == text


def test_an_older_file_that_a_crash_tore_does_not_matter(run):
    (run / "2025_samples_t.jsonl").write_text("{")
    os.utime(run / "2025_samples_t.jsonl", (1, 1))
    assert command.main([str(run.parents[1])]) == 0


@pytest.mark.parametrize("url", ["http://[::1", "http://localhost:x/v1", "http://localhost:99999/v1"])
def test_an_address_that_does_not_parse_is_one_line_without_its_password(run, capsys, monkeypatch, url):
    monkeypatch.setenv("OPENAI_API_URL", url.replace("//", "//me:secret@"))
    error = line_of(run, capsys)
    assert error.startswith("error: OPENAI_API_URL=")
    assert "secret" not in error


def test_a_number_of_thousands_of_digits_is_one_line(run, capsys, monkeypatch):
    monkeypatch.setenv("KV_JUDGE_CONCURRENCY", "9" * 5000)
    assert line_of(run, capsys).startswith("error: KV_JUDGE_CONCURRENCY=999")

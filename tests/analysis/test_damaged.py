"""Whatever is in a folder or typed on a command line: one line that names it, status 2, and nothing else."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from analysis import inspection, pareto, records, retention_map, speed, style, tables
from analysis.errors import ResultsError, told
from analysis.kept import Prompt, Sample
from analysis.results import read_result

TEMPLATE = Path(__file__).parent / "fixture" / "llava" / "full" / "result.chartqa.json"


def damaged(folder, where, value):
    content = json.loads(TEMPLATE.read_text())
    *outer, last = where.split(".")
    place = content
    for name in outer:
        place = place[name]
    place[last] = value
    path = folder / "result.chartqa.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("task", None),
        ("task", 3),
        ("fingerprint", []),
        ("fingerprint", "a\nb"),
        ("lmms_eval_date", True),
        ("config.method", {}),
        ("config.variant", None),
        ("config.retention", "x"),
        ("config.retention", 0),
        ("counts.samples", "x"),
        ("counts.failed", -1),
        ("metrics", {}),
        ("metrics", "x"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_the_file(tmp_path, where, value):
    path = damaged(tmp_path, where, value)
    with pytest.raises(ResultsError, match="missing or not as expected") as error:
        read_result(path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), 10**400])
def test_a_score_that_is_no_number_is_none(value, tmp_path):
    path = damaged(tmp_path, "metrics", {"relaxed_overall,none": value, "relaxed_overall_stderr,none": -1})
    row = read_result(path)
    assert np.isnan([row["score"], row["stderr"]]).all()


def test_a_score_that_was_changed_after_the_run_is_refused(tmp_path):
    content = json.loads(TEMPLATE.read_text())
    score = content["metrics"]["relaxed_overall,none"]
    content["difference_to_full"] = {"relaxed_overall": {"mean": 0, "low": 0, "high": 0, "score": score}}
    path = tmp_path / "result.chartqa.json"
    path.write_text(json.dumps(content))
    assert read_result(path)["score"] == score
    content["metrics"]["relaxed_overall,none"] = score + 0.1
    path.write_text(json.dumps(content))
    with pytest.raises(
        ResultsError, match=rf"{score + 0.1:g}, but the mean of its samples is {score:g}: it was changed"
    ):
        read_result(path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_json_is_refused(tmp_path, content):
    path = tmp_path / "result.chartqa.json"
    path.write_bytes(content)
    with pytest.raises(ResultsError, match="not readable"):
        read_result(path)


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path):
    with pytest.raises(ResultsError, match="not readable"):
        read_result(tmp_path)


def test_where_nothing_can_be_written_is_said_in_one_line(tmp_path, capsys):
    shutil.copytree(TEMPLATE.parent, tmp_path / "full")
    (tmp_path / "file").write_text("")
    assert tables.main([str(tmp_path), "--output", str(tmp_path / "file" / "tables")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'file' / 'tables'}: Not a directory\n"


def test_an_error_is_one_line_whatever_a_file_says(capsys):
    def command():
        raise ResultsError("a\nb")

    assert told(command) == 2
    assert capsys.readouterr().err == "error: a b\n"


@pytest.mark.parametrize("width", ["0", "-5", "nan", "inf", "1e9", "x"])
def test_a_width_at_which_nothing_can_be_read_is_refused(width, capsys):
    with pytest.raises(SystemExit) as stopped:
        pareto.main(["nowhere", "--width", width])
    assert stopped.value.code == 2
    assert f"--width: '{width}': a number of mm from 60 to 1000 is needed" in capsys.readouterr().err


def test_no_format_is_refused():
    with pytest.raises(ResultsError, match="--formats ',' names none; allowed are png, svg, pdf"):
        style.wanted_formats(",")


@pytest.mark.parametrize("text", ["x", "-1", "1.5"])
def test_a_layer_that_is_no_number_is_refused(text):
    with pytest.raises(ResultsError, match=f"--layers {text}: whole numbers from 0"):
        retention_map.wanted_layers(text)


def test_layers_are_numbers_separated_by_commas():
    assert retention_map.wanted_layers("0, 4") == [0, 4]


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"schema": 1}'])
def test_a_damaged_prompt_is_named(tmp_path, content):
    path = tmp_path / "0.json"
    path.write_text(content)
    with pytest.raises(ResultsError, match="missing or not as expected") as error:
        Prompt.read(path)
    assert str(error.value).startswith(f"{path}: ")


def test_a_picture_that_is_gone_is_named(tmp_path):
    with pytest.raises(ResultsError, match=r"0\.jpg: the picture of a prompt cannot be read"):
        Prompt(tmp_path, [], []).picture({"file": "0.jpg"})


@pytest.mark.parametrize("kept", [{}, {"bits": "x", "shape": [1]}, {"bits": "eJwDAAAAAAE=", "shape": [9, 9, 9]}])
def test_kept_entries_that_cannot_be_unpacked_are_named(tmp_path, kept):
    sample = Sample("m", "tgv_kv", 0.1, "chartqa", 7, "a", {"kept": kept}, tmp_path)
    with pytest.raises(ResultsError, match="sample 7 of chartqa: what was kept is not readable"):
        _ = sample.kept


@pytest.mark.parametrize("rows", [[], "abc", [5], [{"x": 1}]])
def test_figures_of_speed_that_are_incomplete_are_refused(tmp_path, capsys, rows):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"schema": 1, "rows": rows, "device": "cpu", "copy_bandwidth": 1}))
    assert speed.main([str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {path}: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [("map", None), ("map", np.full((2, 3, 3), np.nan)), ("received", np.zeros((2, 4))), ("bins", np.zeros(3))],
)
def test_an_inspection_that_does_not_hold_together_is_refused(tmp_path, name, value):
    arrays = {key: np.ones((2, 4)) for key in ("received", "from_text", "similarity")}
    arrays |= {key: np.ones((2, 3, 3)) for key in ("map", "blocks", "cosines")}
    arrays |= {"is_vision": np.ones(4), "bins": np.arange(4), "shown": np.arange(4), "coverage": np.ones((1, 2))}
    meta = {"schema": 1, "tokens": [""] * 4, "configs": [{"method": "h2o", "variant": "paper", "retention": 0.1}]}
    path = tmp_path / "0.npz"
    np.savez(path, meta=json.dumps(meta), **arrays)
    assert inspection.Inspected.read(path).layers == 2
    changed = {key: array for key, array in (arrays | {name: value}).items() if array is not None}
    np.savez(path, meta=json.dumps(meta), **changed)
    with pytest.raises(ResultsError, match="not a file of"):
        inspection.Inspected.read(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ResultsError, match="not a file of"):
        inspection.Inspected.read(path)


PROOF = {"retention_achieved": 0.1, "kv_bytes_kept": 1, "kv_bytes_full": 10}
RECORD = {"schema": 2, "task": "t", "doc_id": 0, "repeat": 0, "status": "ok", "time": 1, "answer": "a"}
RECORD |= {"answer_tokens": 1, "seconds": 0.1, "timing": "own", "eviction": PROOF, "prompt_hash": "h"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schema", 1),
        ("task", []),
        ("doc_id", None),
        ("time", "x"),
        ("answer", {}),
        ("seconds", ""),
        ("answer_tokens", "three"),
        ("answer_tokens", 10**400),
        ("eviction", [1]),
        ("eviction", PROOF | {"retention_achieved": "half"}),
        ("eviction", PROOF | {"kv_bytes_kept": None}),
        ("eviction", PROOF | {"kv_bytes_full": float("nan")}),
        ("prompt_hash", 3),
        ("attempt", "first"),
    ],
)
def test_a_damaged_record_counts_as_absent_and_is_named_where_there_is_no_other(tmp_path, name, value):
    record = RECORD | {"fingerprint": tmp_path.name}
    path = tmp_path / "records.rank0.jsonl"
    path.write_bytes(b"\xff\n" + b"[" * 100_000 + b"\n" + json.dumps(record).encode() + b'\n{"torn')
    assert (len(found := records.records_of(tmp_path)), found.attrs["damaged"]) == (1, 0)
    path.write_text(json.dumps(record) + "\n" + json.dumps(record | {"doc_id": 1} | {name: value}))
    assert (len(found := records.records_of(tmp_path)), found.attrs["damaged"]) == (1, 1)
    path.write_text(json.dumps(record | {name: value}))
    said = "record of version 1" if name == "schema" else f"{name if name != 'eviction' else '.*'}="
    with pytest.raises(ResultsError, match=rf"no per-sample records: .*records\.rank0\.jsonl:1: {said}"):
        records.records_of(tmp_path)


def test_an_answer_counts_before_a_failure_and_the_last_attempt_before_any_clock(tmp_path):
    record = RECORD | {"fingerprint": tmp_path.name}
    failed = record | {"status": "failed", "time": 4e9, "attempt": 3}
    first, second = (record | {"answer": str(number), "time": -number, "attempt": number} for number in (1, 2))
    other = record | {"prompt_hash": "other", "answer": "of another prompt"}
    for lines in ([failed, second, first, other], [first, other, second, failed]):
        (tmp_path / "records.rank0.jsonl").write_text("\n".join(map(json.dumps, lines)))
        assert sorted(records.records_of(tmp_path)["answer"]) == ["2", "of another prompt"]


@pytest.mark.parametrize("text", ["[1]", '{"config": 5}', "{"])
def test_a_configuration_that_is_none_counts_as_absent(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    assert records.configuration(tmp_path) == {}

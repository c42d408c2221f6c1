"""What was run and has no score: refused by name, or shown with its reason."""

import json
import shutil

import pytest

from analysis import report, tables
from analysis.table import main

from .test_table import TEMPLATE, write


def write_failed(folder, run, failed, **config):
    """As the sweep does: no result file."""
    known = json.loads(TEMPLATE.read_text())
    (folder / run).mkdir()
    tasks = {"mini_scene": {"samples": 2, "failed": failed, "reason": "OSError: no picture" if failed else None}}
    content = {"schema": 1, "model": known["model"], "config": known["config"] | config, "tasks": tasks}
    (folder / run / "failed.json").write_text(json.dumps(content))


def test_a_configuration_that_failed_is_refused_by_name_or_shown(tmp_path, capsys):
    write(tmp_path, "full", 0.8)
    for share in (0.5, 0.05):
        write_failed(tmp_path, f"fastv-{share}", 2, method="fastv", retention=share)
    said = "fastv 5 %: 2 of 2 samples of mini_scene failed: OSError: no picture"
    for command in (main, tables.main, report.main):
        assert command([str(tmp_path)]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert "--allow-failures" in error
        assert command([str(tmp_path), "--allow-failures"]) == 0
        assert said in capsys.readouterr().err
    text = (tmp_path / "table.md").read_text()
    assert "No score: fastv 5 % on scene (failed 2); fastv 50 % on scene (failed 2)." in text
    assert said in (tmp_path / "report.html").read_text()


def test_a_folder_with_failed_runs_only_says_so(tmp_path, capsys):
    write_failed(tmp_path, "fastv-0.95", 2, method="fastv", retention=0.05)
    assert main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "no finished run in here, but: fastv 5 %: 2 of 2 samples of mini_scene failed: OSError" in error
    assert "quickstart" not in error


@pytest.mark.parametrize("place", [".", "records", "../records", ".."])
def test_a_run_by_hand_that_did_not_end_is_said(place, tmp_path, capsys):
    source = next((TEMPLATE.parents[1] / "records").glob("*/config.json")).parent
    run = tmp_path / "run"
    run.mkdir()
    shutil.copytree(source, run / place / source.name)
    assert main([str(run)]) == 2
    said = "random_text_first (plain) 5 %: 3 of 4 samples of chartqa failed: OutOfMemoryError: no room"
    assert f"{run}: no finished run in here, but: {said}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 9}', '{"schema": 1}', '{"schema": 1, "tasks": {"a": 1}}'])
def test_a_damaged_file_of_failures_is_refused_by_name(text, tmp_path, capsys):
    write(tmp_path, "full", 0.8)
    path = tmp_path / "full" / "failed.json"
    path.write_text(text)
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {path}: ")


def test_records_that_do_not_say_what_ran_are_refused_by_name(tmp_path, capsys):
    write(tmp_path, "full", 0.8)
    source = next((TEMPLATE.parents[1] / "records").glob("*/config.json")).parent
    path = shutil.copytree(source, tmp_path / "records" / source.name) / "config.json"
    path.write_text('{"config": {"method": "tgv_kv"}}')
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {path}: 'variant' is missing or not as expected; run again\n"

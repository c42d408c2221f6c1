"""The file of a run: what was damaged, cannot be written or is in use is said in one line, and nothing is lost."""

import json
import subprocess
import sys
import time

import psutil
import pytest

from benchmarks import efficiency, figures

from .test_grid import SMALL, path, run  # noqa: F401, the fixtures


def drop(row, name):
    return {key: value for key, value in row.items() if key != name}


@pytest.mark.parametrize(
    "damage",
    [
        {"copy_bandwidth": None},
        {"copy_bandwidth": "fast"},
        {"rows": {"a": 1}},
        {"rows": ["a"]},
        lambda row: drop(row, "length"),
        lambda row: drop(row, "method"),
        lambda row: drop(row, "prefill_s"),
        lambda row: row | {"step_s": None},
        lambda row: row | {"step_s": float("nan")},
        lambda row: row | {"scoring_s": "x"},
    ],
)
def test_a_damaged_file_is_not_gone_on_from(run, path, capsys, damage):  # noqa: F811
    run("--batches", "1")
    content = json.loads(path.read_text())
    more = {"rows": [damage(content["rows"][0]), *content["rows"][1:]]} if callable(damage) else damage
    path.write_text(json.dumps(content | more))
    before = path.read_bytes()
    capsys.readouterr()
    assert run("--batches", "1") == (2, [])
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path} is damaged: ")
    assert error.count("\n") == 1
    assert path.read_bytes() == before
    assert len(run("--batches", "1", "--no-resume")[1]) == 8


def test_a_full_disk_ends_the_run_and_keeps_what_was_written(run, path, monkeypatch, capsys):  # noqa: F811
    write, written = figures.write_json, []

    def full(*arguments):
        written.append(arguments)
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        write(*arguments)

    monkeypatch.setattr(figures, "write_json", full)
    assert run()[0] == 2
    assert capsys.readouterr().err == f"error: --output {path} cannot be written: No space left on device\n"
    assert len(json.loads(path.read_text())["rows"]) == 2
    assert len(run()[1]) == 14


def test_two_runs_never_write_one_file(run, path, monkeypatch, capsys):  # noqa: F811
    inner = []

    def begin_another(*_):
        if not inner:
            inner.append(efficiency.main([*SMALL, "--output", str(path)]))
        return 1e9

    monkeypatch.setattr(efficiency, "copy_bandwidth", begin_another)
    assert len(run()[1]) == 16
    assert inner == [2]
    assert capsys.readouterr().err == f"error: --output {path} is being written by another run\n"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends the child, on Linux")
def test_a_run_that_is_killed_leaves_no_configuration_behind_and_its_file_free(run, path):  # noqa: F811
    command = [sys.executable, "-m", "benchmarks.efficiency", *SMALL, "--new", "100000", "--output", str(path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        family = psutil.Process(process.pid)
        while not (children := family.children()):
            assert process.poll() is None
            time.sleep(0.05)
        (child,) = children
        while child.cpu_times().user < 8:  # libraries are loaded
            time.sleep(0.05)
        process.kill()
        process.wait()
    psutil.wait_procs([child], timeout=20)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert len(run()[1]) == 16

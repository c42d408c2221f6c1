"""Files of a run are whole, stay in their folder, and take any text; so does what is printed."""

import io
import json
import os
import subprocess
import sys

import pytest

from lmms_eval_plugins import files, records
from lmms_eval_plugins.store import Store

from . import grid, toy
from .test_store import PROOF, key, record

NOT_UTF8 = os.fsdecode(b"caf\xe9.png")


def killed() -> int:
    """The number of a process that has ended."""
    child = grid.forked(lambda: None)
    os.waitpid(child, 0)
    return child


def test_what_a_killed_process_left_behind_goes_with_the_next_file(tmp_path):
    pid, host = killed(), files.platform.node()
    left = [f".config.json.{pid}", f".config.json.{host}-{pid}", f".summary.json.{pid}"]
    kept = [f".config.json.{os.getpid()}", f".config.json.elsewhere-{pid}", ".config.json.mine", "config.json.9"]
    for name in left + kept:
        (tmp_path / name).write_text("{")
    files.write_json(tmp_path / "summary.json", {})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "summary.json"])


def test_a_file_that_cannot_be_finished_leaves_the_old_one_and_nothing_else(tmp_path):
    files.write_json(tmp_path / "a.json", {"old": 1})
    with pytest.raises(TypeError, match="keys must be str"):
        files.write_json(tmp_path / "a.json", {"new": {(1, 2): 3}})
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert json.loads((tmp_path / "a.json").read_text()) == {"old": 1}


@pytest.mark.parametrize("task", ["a/b", "../../up", "/etc/passwd", "a\\b", "nul\0", "../" * 90, NOT_UTF8])
def test_a_task_s_result_stays_in_its_folder(task, tmp_path):
    folder = tmp_path / "one" / "two" / "run"
    files.write_json(records.result_file(folder, task), {"task": task})
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert path.parent == folder
    assert json.loads(path.read_text()) == {"task": task}


def test_names_of_files_tell_tasks_apart_and_keep_what_they_can():
    assert files.file_name("mini_scene") == "mini_scene"
    assert len({files.file_name(task) for task in ("a/b", "a%2Fb", "a b", "x" * 200 + "1", "x" * 200 + "2")}) == 5


def test_a_name_that_is_not_utf8_is_kept_in_records_and_files(tmp_path):
    path = tmp_path / "v1-0"
    opened = Store(path).open(0)
    opened.append([record(answer=NOT_UTF8, eviction=PROOF), record(1, status="failed", error=f"no {NOT_UTF8}")])
    opened.close()
    assert Store(path).load().find(key()).text == NOT_UTF8
    files.write_json(tmp_path / "failed.json", {"reason": NOT_UTF8})
    assert json.loads((tmp_path / "failed.json").read_text())["reason"] == NOT_UTF8


def test_a_name_that_is_not_utf8_is_printed():
    code = "from lmms_eval_plugins import files; files.print_everything(); print('a\\udce9')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"a\\udce9\n"


def test_a_sample_of_such_a_name_fails_alone(checkpoint, environment, monkeypatch):
    """It used to end the run at the line that says so, whenever it was resumed."""
    for name, value in grid.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    files.print_everything()
    docs = toy.documents()[:2]
    docs[0] |= {"broken": True}
    monkeypatch.setattr(toy.ToyTask, "doc_to_visual", lambda self, doc: visual(doc))
    answers = grid.ask(grid.wrapper(checkpoint("llava"), environment), docs)
    assert [bool(answer) for answer in answers] == [False, True]
    sys.stdout.flush()
    assert b"toy/0 failed: OSError: no picture caf\\udce9.png" in sys.stdout.buffer.getvalue()
    failed = [line for line in toy.records(environment) if line["status"] == "failed"]
    assert [line["error"] for line in failed] == ["OSError: no picture caf\\udce9.png"]


def visual(doc):
    if doc.get("broken"):
        raise OSError(f"no picture {NOT_UTF8}")
    return doc["images"]

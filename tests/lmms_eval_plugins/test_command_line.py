"""The official command as a user types it, in processes of its own: scores, exit codes, messages."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from . import broken_task

ROOT = Path(__file__).parents[2]
METHOD = {"KV_CACHE_TYPE": "tgv_kv", "PRUNE_RATIO": "0.7"}


@pytest.fixture
def launch(site, checkpoint, tmp_path):
    """Starts lmms-eval; returns status, output and what is on standard error apart from progress."""

    def run(launcher, *argv, args="", **env):
        command = [*launcher, "-m", "lmms_eval", "--model", "llava_hf", "--output_path", "out", "--log_samples"]
        command += ["--model_args", f"pretrained={checkpoint('llava')},attn_implementation=eager,device_map=cpu{args}"]
        folders = {"KV_RECORDS_DIR": "records"}
        done = subprocess.run(
            [*command, *argv],
            env=site.environment | folders | env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout, [line for line in done.stderr.splitlines() if line.startswith("error: ")]

    return run


TOKEN = "an-odd-token-0123456789"
PYTHON = [sys.executable]
ACCELERATE = [sys.executable, "-m", "accelerate.commands.launch"]
MINI = ("--tasks", "mini_scene", "--batch_size", "1", "--limit", "5")


def answers(folder: Path) -> dict:
    path = max(folder.rglob("*_samples_mini_scene.jsonl"))
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    path.unlink()
    return {sample["doc_id"]: sample["filtered_resps"] for sample in samples}


def test_the_official_command_and_the_same_in_two_processes(launch, tmp_path):
    status, output, errors = launch([*ACCELERATE, "--num_processes=2"], *MINI, HF_TOKEN=TOKEN, **METHOD)
    assert (status, errors) == (0, [])
    assert "'token': '***'" in output  # lmms-eval logs it
    assert TOKEN not in output
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert "keeps 30 % of the prompt's entries" in output
    assert "1 process runs on cpu" in output
    assert "|mini_scene|" in output
    results = json.loads(next(tmp_path.rglob("*_results.json")).read_text())
    (folder,) = (tmp_path / "records").iterdir()
    assert f"kv_fingerprint={folder.name}" in results["config"]["model_args"]
    assert json.loads((folder / "config.json").read_text())["config"]["method"] == "tgv_kv"
    single = answers(tmp_path)
    assert sorted(single) == [0, 1, 2, 3, 4]

    two = {**METHOD, "KV_RECORDS_DIR": "records_of_two"}
    status, output, errors = launch([*ACCELERATE, "--multi_gpu", "--num_processes=2"], *MINI, **two)
    assert (status, errors) == (0, [])
    assert "2 processes run on cpu" in output
    assert answers(tmp_path) == single
    (same,) = (tmp_path / "records_of_two").iterdir()
    assert same.name == folder.name
    assert sorted(path.name for path in same.glob("records*")) == ["records.rank0.jsonl", "records.rank1.jsonl"]


def test_a_bad_setting_ends_the_command_before_anything_is_loaded(launch):
    status, output, errors = launch(PYTHON, *MINI, KV_CACHE_TYPE="tgv_kv", PRUNE_RATIO="95")
    assert status == 1
    assert len(errors) == 1
    assert "0.95" in errors[0]
    assert "Loading" not in output


def test_an_unknown_task_ends_the_command_before_a_model_is_loaded(launch):
    status, output, errors = launch(PYTHON, "--tasks", "mini_scnee", **METHOD)
    assert status == 1
    assert errors == [
        "error: --tasks: there is no task mini_scnee. Did you mean 'mini_scene'? (all: lmms-eval --tasks list)"
    ]
    assert "[kv]" not in output


def test_failed_samples_end_the_command_without_a_score(launch, tmp_path):
    folder = broken_task.write(tmp_path / "tasks")
    status, output, errors = launch(
        PYTHON, "--tasks", "broken_scene,mini_scene", "--include_path", str(folder), "--limit", "3", **METHOD
    )
    assert status == 1
    assert "0 of 6 answers are in the store" in output  # of a folder of one's own, and ours beside it
    assert len(errors) == 1
    assert "1 of 6 samples failed; no score is computed" in errors[0]
    assert not list(tmp_path.rglob("*_results.json"))

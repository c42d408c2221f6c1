"""`python -m lmms_eval_plugins.sweep`: one process or two, a grid's results on disk, nothing computed again."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from lmms_eval_plugins import results, sweep
from lmms_eval_plugins.errors import RunStopped
from lmms_eval_plugins.store import Store
from tiny_vlm import MODEL_DIR

from . import processes

SWEEP = "retention: [0.5, 0.1]\nmethods: [full, tgv_kv, {method: h2o, decode: evict, retention: 0.3}]\n"
LABELS = ["full", "tgv_kv-0.50", "tgv_kv-0.90", "h2o-evict-0.70"]
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweeps")
    (path / "grid.yaml").write_text(SWEEP)
    return path


@pytest.fixture
def command(site, checkpoint, folder):
    """Sweeps on five samples: arguments and environment, the launcher's, and one in forks of this process."""
    model = f"pretrained={checkpoint('llava')},device_map=cpu"
    argv = ["--sweep", "grid.yaml", "--model", "llava_hf", "--model_args", model, "--tasks", "mini_scene"]
    argv += ["--limit", "5", "--batch_size", "2", "--output_path"]
    env = site.environment | {"KV_RECORDS_DIR": "records"}

    def launch(count, output):
        line = [*LAUNCH, f"--num_processes={count}", "-m", "lmms_eval_plugins.sweep", *argv, output]
        done = subprocess.run(line, env=env, cwd=folder, capture_output=True, text=True, timeout=300)
        return processes.Done(done.returncode, done.stdout, done.stderr)

    def fork(count, output, *arguments, main=sweep.main, **more):
        return processes.run(main, [*argv, output, *arguments], env | more, folder, count)

    return SimpleNamespace(launch=launch, fork=fork)


def scores(folder):
    found = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/result.mini_scene.json")}
    return {
        name: (result["metrics"]["exact_match,none"], result["counts"], result["retention"])
        for name, result in found.items()
    }


def answers(folder):
    lines = [line for path in folder.rglob("records.rank*.jsonl") for line in path.read_text().splitlines()]
    records = [json.loads(line) for line in lines]
    return sorted((record["fingerprint"], record["doc_id"], record["answer"]) for record in records)


def test_a_sweep_in_two_processes_then_the_same_from_the_store(command, folder):
    done = command.launch(2, "two")
    assert (done.status, done.stopped) == (0, []), done
    assert "2 processes run on cpu" in done.output
    assert "4/4 h2o-evict-0.70 in" in done.output
    done = command.fork(1, "again")
    assert (done.status, done.stopped) == (0, []), done
    assert "4/4 h2o-evict-0.70 in" in done.output
    assert "computing" not in done.output
    assert sorted(scores(folder / "two")) == sorted(LABELS)
    assert scores(folder / "again") == scores(folder / "two")
    result = json.loads((folder / "two" / "tgv_kv-0.90" / "result.mini_scene.json").read_text())
    assert result["counts"] == {"samples": 5, "failed": 0, "single_token_answers": 0}
    assert 0 < result["retention"]["min"] <= result["retention"]["max"] <= 0.1
    assert result["difference_to_full"]["exact_match"]["samples"] == 5
    assert result["records"] == f"../../records/{result['fingerprint']}"
    assert (folder / "two" / "tgv_kv-0.90" / result["records"] / "config.json").is_file()
    files = (folder / "records" / result["fingerprint"]).glob("records.rank*.jsonl")
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert result["prompts"] == {str(line["doc_id"]): line["prompt_hash"] for line in lines}
    assert len(lines) == 5
    full = json.loads((folder / "two" / "full" / "result.mini_scene.json").read_text())
    assert result["full_fingerprint"] == full["full_fingerprint"] == full["fingerprint"] != result["fingerprint"]
    assert list((folder / "two" / "tgv_kv-0.90").rglob("*_results.json"))
    for count in (1, 3):  # five samples are shared out as 2, 2, 1
        store = f"records_of_{count}"
        done = command.fork(count, f"{count}", KV_RECORDS_DIR=store)
        assert (done.status, done.stopped) == (0, []), done
        assert f"{count} process{'es run' if count > 1 else ' runs'} on cpu" in done.output
        assert len(list((folder / store / result["fingerprint"]).glob("records.rank*.jsonl"))) == count
        assert scores(folder / f"{count}") == scores(folder / "two")
        assert answers(folder / store) == answers(folder / "records")


def test_what_failed_is_beside_the_results_until_it_has_a_score(command, folder):
    (folder / "failing.yaml").write_text("retention: [0.52, 0.05]\nmethods: [full, fastv]\n")
    arguments = ["--sweep", "failing.yaml", "--model_args", f"pretrained={MODEL_DIR},device_map=cpu", "--limit", "2"]
    failed, out = "failed.json", folder / "failing"
    done = command.fork(1, "failing", *arguments)
    assert (done.status, done.stopped[-1]) == (1, "error: no score of fastv-0.48, fastv-0.95: samples failed")
    counts = {path.parent.name: json.loads(path.read_text())["tasks"] for path in out.glob(f"*/{failed}")}
    assert {label: tasks["mini_scene"].pop("reason")[:48] for label, tasks in counts.items()} == {
        "fastv-0.48": "ConfigError: KV_RETENTION=0.52 is out of reach f",
        "fastv-0.95": "ConfigError: KV_RETENTION=0.05 is out of reach f",
    }
    assert counts == {
        "fastv-0.48": {"mini_scene": {"samples": 2, "failed": 1}},
        "fastv-0.95": {"mini_scene": {"samples": 2, "failed": 2}},
    }
    done = command.fork(1, "failing", *arguments, KV_ALLOW_FAILURES="1")
    assert (done.status, done.stopped[-1]) == (1, "error: no score of fastv-0.95: samples failed")
    assert [path.parent.name for path in out.glob(f"*/{failed}")] == ["fastv-0.95"]
    counts = scores(out)["fastv-0.48"][1]
    assert (counts["samples"], counts["failed"]) == (2, 1)
    assert f"[kv] MODEL_TYPE is not set; {MODEL_DIR} has the architecture and sizes of tiny-vlm" in done.output
    full = json.loads((out / "full" / "result.mini_scene.json").read_text())
    assert full["config"]["model_type"] == "tiny-vlm"


def test_records_in_folders_of_several_machines_are_said_to_be_missing(command, folder):
    def main(argv):
        os.environ["KV_RECORDS_DIR"] = f"records_of_machine_{os.environ['RANK']}"
        return sweep.main(argv)

    done = command.fork(2, "apart", "--methods", "full", main=main)
    result = json.loads((folder / "apart" / "full" / "result.mini_scene.json").read_text())
    assert (result["counts"]["samples"], result["counts"]["records_missing"]) == (5, 2)
    assert (result["means"]["kv_bytes_kept"], len(result["prompts"])) == (None, 5)
    place = f"records_of_machine_0/{result['fingerprint']}"
    assert done.status == 1
    assert f"error: records of 2 of 5 samples of mini_scene are not in {place}, so there are no" in done.stopped[-1]


def planned(checkpoint, folder, *argv, task="mini_scene"):
    model = ["--model", "llava_hf", "--model_args", f"pretrained={checkpoint},device_map=cpu", "--tasks", task]
    return sweep.main(["--sweep", str(folder / "grid.yaml"), "--dry-run", *model, *argv])


def test_a_dry_run_shows_every_run_with_its_fingerprint_and_what_is_there(checkpoint, folder, environment, capsys):
    assert planned(checkpoint("llava"), folder, "--methods", "tgv_kv") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [line[0] for line in lines] == LABELS[:3]
    assert [line[2:] for line in lines] == [["there:", "nothing"]] * 3
    store = Store(environment / lines[1][1]).open(0)
    answer = {
        "task": "mini_scene",
        "repeat": 0,
        "prompt_hash": "h",
        "status": "ok",
        "answer": "",
        "generated_tokens": 1,
        "answer_tokens": 1,
        "eviction": None,
    }
    store.append([answer | {"doc_id": doc_id} for doc_id in range(3)])
    store.close()
    assert planned(checkpoint("llava"), folder) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == LABELS
    assert lines[1].endswith("there: 3 of mini_scene")


def test_a_dry_run_of_what_cannot_run_yet_plans_it_says_what_to_do_and_has_a_status_of_its_own(
    checkpoint, folder, monkeypatch, capsys
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert planned(checkpoint("llava"), folder, task="videott_no_leading_oe") == 3
    output = capsys.readouterr()
    assert [line.split()[0] for line in output.out.splitlines()[1:5]] == LABELS
    missing = output.out.splitlines()[5:]
    assert missing
    assert all(line.startswith("cannot run yet: ") for line in missing)
    assert any("KV_JUDGE=none" in line for line in missing)
    (line,) = output.err.splitlines()
    assert line == 'error: settle what "cannot run yet" names, then run the same again without --dry-run'


@pytest.mark.parametrize(
    ("variables", "argv", "message"),
    [
        (
            {"KV_CACHE_TYPE": "tgv_kv"},
            (),
            "KV_CACHE_TYPE=tgv_kv is set, but a sweep names its configurations: unset it",
        ),
        ({}, ("--retention", "half"), "--retention=half: a number above 0"),
        ({}, ("--methods", "snapvk"), "Did you mean 'snapkv'?"),
    ],
)
def test_what_cannot_be_planned_is_one_line(variables, argv, message, checkpoint, folder, monkeypatch, capsys):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RunStopped):
        planned(checkpoint("llava"), folder, *argv)
    assert message in capsys.readouterr().err


def test_the_interval_of_a_paired_difference_is_seeded_and_covers_the_mean():
    found = results.paired_difference([1.0, 0.0, -1.0, 1.0, 1.0, 0.0, 1.0, 0.0])
    assert found == results.paired_difference([1.0, 0.0, -1.0, 1.0, 1.0, 0.0, 1.0, 0.0])
    assert found["low"] < found["mean"] == 0.375 < found["high"]
    assert results.paired_difference([0.0] * 5)["high"] == 0

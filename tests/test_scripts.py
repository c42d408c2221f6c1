"""The accuracy scripts run to a table on a tiny checkpoint of their own family, and say what they cannot do."""

import json
import re
import shlex
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file

from kv_caches.models import model_row
from lmms_eval_plugins import needs
from lmms_eval_plugins.sweeps import load_sweep
from tests.lmms_eval_plugins.checkpoints import BUILD
from tests.test_readme import ROOT, run

FAMILIES = {
    "accuracy_llava": "llava-7B",
    "accuracy_llava_next": "llava-next",
    "accuracy_llava_ov": "llava-ov-0.5B",
    "accuracy_qwen": "qwen-8B",
    "accuracy_qwen_4b": "qwen-4B",
    "accuracy_qwen_video": "qwen-8B-video",
}
TINY = {"TASKS": "mini_scene", "LIMIT": "1", "RETENTION": "0.5", "METHODS": "tgv_kv", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Makes the checkpoint of a row's family, once."""
    made: dict[str, Path] = {}

    def make(row):
        kind = model_row(row)["model_type"]
        if kind not in made:
            made[kind] = BUILD[kind](tmp_path_factory.mktemp(kind))
        return str(made[kind])

    return make


def script(name, *arguments, **env):
    return run(f"bash scripts/{name}.sh {shlex.join(arguments)}", **TINY | env)


def fake(path, body):
    """A program."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


def finished(folder, samples):
    """Whether a folder holds the table of the full cache and TGV-KV at 50 %."""
    table = (folder / "table.md").read_text()
    assert re.search(r"\| full .* 100 % \|", table), table
    assert re.search(r"\| tgv_kv .* 50 % \|", table), table
    assert f"{samples} samples per task" in table
    assert (folder / "score_vs_retention.png").stat().st_size > 5_000


@pytest.mark.parametrize(
    ("name", "processes"),
    [(name, 2 if name == "accuracy_llava" else 1) for name in FAMILIES],
)
def test_an_accuracy_script_runs_to_a_table(name, processes, checkpoint, tmp_path):
    row, samples = FAMILIES[name], processes
    env = {"NUM_PROCESSES": "2", "LIMIT": "2"} if processes == 2 else {}
    result = script(name, CKPT=checkpoint(row), OUTPUT=f"{tmp_path}/out", **env)
    assert result.returncode == 0, result.stderr
    finished(tmp_path / "out", samples)
    assert f"[kv] {'2 processes run' if processes == 2 else '1 process runs'} on cpu" in result.stderr
    written = json.loads((tmp_path / "out" / "tgv_kv-0.50" / "result.mini_scene.json").read_text())
    assert written["lmms_eval_model"] == model_row(row)["wrapper"]
    assert 0 < written["retention"]["max"] <= 0.5


def test_separate_is_the_official_loop(checkpoint, tmp_path):
    """With a launcher that only says what it is asked for."""
    fake(tmp_path / "bin" / "accelerate", 'env | grep -E "^(KV|PRUNE)" | sort; echo "$@"')
    out = tmp_path / "out"
    env = {"CKPT": checkpoint("qwen-4B"), "OUTPUT": str(out), "RETENTION": "0.5,0.05"}
    result = run(f"PATH={tmp_path}/bin:$PATH bash scripts/accuracy_qwen_4b.sh --separate", **TINY | env)
    assert f"error: {out}: no finished run in here" in result.stderr
    store = [f"KV_RECORDS_DIR={out}/records", f"KV_SWEEP={out}/grid.yaml"]
    for label, variables in (
        ("full", ["KV_CACHE_TYPE=full"]),
        ("tgv_kv-0.50", ["KV_CACHE_TYPE=tgv_kv", "PRUNE_RATIO=0.5"]),
        ("tgv_kv-0.95", ["KV_CACHE_TYPE=tgv_kv", "PRUNE_RATIO=0.95"]),
    ):
        *seen, command = (out / label / "log.txt").read_text().splitlines()
        assert sorted(seen) == sorted(store + variables)
        assert re.search(r"^launch .*--num_processes 1 -m lmms_eval --model qwen3_vl .*--tasks mini_scene ", command)
        assert command.endswith(f"--output_path {out}/{label}")
    assert [config.method for config in load_sweep(f"{out}/grid.yaml")] == ["full", "tgv_kv", "tgv_kv"]


@pytest.mark.parametrize("name", FAMILIES)
def test_help_names_the_model_and_every_variable(name):
    result = script(name, "--help")
    assert result.returncode == 0
    assert result.stdout.startswith(f"usage: bash scripts/{name}.sh")
    assert f"on {FAMILIES[name]} of configs/models" in result.stdout
    tasks = re.search(r"\n  TASKS .*\(default: (.*)\)", result.stdout).group(1).split(",")
    assert len(tasks) == (5 if name == "accuracy_qwen_video" else 6)
    assert needs.unknown(tasks) == []
    for variable in (
        "CKPT",
        "TASKS",
        "LIMIT",
        "SWEEP",
        "METHODS",
        "RETENTION",
        "NUM_PROCESSES",
        "BATCH_SIZE",
        "OUTPUT",
    ):
        assert f"\n  {variable} " in result.stdout


def test_a_dry_run_prints_every_run_and_runs_nothing(tmp_path):
    env = {"CKPT": "tiny_vlm/weights", "OUTPUT": f"{tmp_path}/out", "METHODS": "", "RETENTION": ""}
    result = script("accuracy_llava", "--dry-run", **env)
    assert result.returncode == 0, result.stderr
    planned = re.findall(r"^\w+(?:-0\.\d+)? +v1-\w{16}  there: nothing$", result.stdout, flags=re.MULTILINE)
    assert len(planned) == 29
    assert "-m lmms_eval_plugins.sweep" in result.stdout.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_without_gpu_and_checkpoint_video_runs_on_the_embedded_model_with_the_offline_judge(tmp_path):
    command = "env -u TASKS -u CKPT bash scripts/accuracy_qwen_video.sh --dry-run"
    result = run(command, **TINY | {"OUTPUT": f"{tmp_path}/out"})
    assert result.returncode == 0, result.stderr
    assert "There is no GPU, and CKPT is not set: tiny-video of configs/models on mini_video" in result.stderr
    assert "judged by KV_JUDGE=exact" in result.stderr
    assert "cannot run yet" not in result.stdout
    assert "pretrained=tiny_vlm/video/weights\\," in result.stdout.splitlines()[-1]
    assert "max_pixels" not in result.stdout


def test_video_on_a_checkpoint_says_what_the_judge_needs(checkpoint, tmp_path):
    env = {"TASKS": "videott_no_leading_oe", "CKPT": checkpoint("qwen-8B-video"), "OUTPUT": f"{tmp_path}/out"}
    result = script("accuracy_qwen_video", "--dry-run", OPENAI_API_KEY="", GPT_EVAL_MODEL_NAME="", **env)
    assert result.returncode == 0, result.stderr
    assert "cannot run yet: --tasks videott_no_leading_oe: answers are judged by another model" in result.stdout
    assert ",max_pixels=203840 " in result.stdout.splitlines()[-1].replace("\\,", ",")


def test_open_answers_are_judged_before_the_table_is_made(checkpoint, tmp_path):
    out = tmp_path / "out"
    env = {"TASKS": "mini_video_primary", "CKPT": checkpoint("qwen-8B-video"), "OUTPUT": str(out)}
    result = script("accuracy_qwen_video", KV_JUDGE="none", MAX_GENERATED_TOKENS="8", **env)
    assert result.returncode == 0, result.stderr
    assert f"python -m lmms_eval_plugins.judge {out} judges them" in result.stderr
    assert not (out / "table.md").exists()
    result = script("accuracy_qwen_video", KV_JUDGE="exact", MAX_GENERATED_TOKENS="8", **env)
    assert result.returncode == 0, result.stderr
    assert "2 of 2 open answers are judged by the offline rule" in (out / "table.md").read_text()


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"LIMIT": "few"}, "LIMIT=few: a number of samples or a share between 0 and 1 is needed"),
        ({"LIMIT": "0"}, "LIMIT=0: a number of samples"),
        ({"NUM_PROCESSES": "two"}, "NUM_PROCESSES=two: a whole number from 1 is needed"),
        ({"BATCH_SIZE": "0"}, "BATCH_SIZE=0: a whole number from 1 is needed"),
        ({"TASKS": ""}, "TASKS is empty"),
        ({"CKPT": "a,b"}, "CKPT=a,b: a comma cannot be part of it"),
    ],
)
def test_a_wrong_value_is_one_clear_line(env, message, tmp_path):
    result = script("accuracy_llava", "--dry-run", OUTPUT=f"{tmp_path}/out", **env)
    assert result.returncode != 0
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.stderr
    assert message in lines[0]
    assert "Traceback" not in result.stderr


def test_another_family_is_refused(tmp_path):
    result = script("accuracy_qwen", CKPT="tiny_vlm/weights", OUTPUT=f"{tmp_path}/out")
    assert result.returncode == 2
    first, last = result.stderr.splitlines()
    assert first.startswith("error: --model qwen3_vl loads ")
    assert last.startswith("error: the evaluation failed; the whole log is ")


def test_the_accelerate_configurations_are_read():
    found = {path.stem: load_config_from_file(str(path)) for path in (ROOT / "configs" / "accelerate").glob("*.yaml")}
    assert (found["one_machine"].num_machines, found["nodes"].num_machines) == (1, 2)


def test_the_slurm_template_starts_one_launcher_per_node_then_prints_the_table(tmp_path):
    fakes = {
        "srun": 'shift; for node in 0 1; do SLURM_NODEID=$node "$@"; done',
        "scontrol": "echo first; echo second",
        "accelerate": 'echo accelerate "$@"',
        "python": 'echo python "$@"',
    }
    for name, body in fakes.items():
        fake(tmp_path / name, body)
    env = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]", "CKPT": "a/b", "MODEL": "qwen3_vl"}
    result = run(f"PATH={tmp_path}:$PATH bash configs/accelerate/slurm.sh", **env)
    assert result.returncode == 0, result.stderr
    *nodes, table = result.stdout.splitlines()
    assert [line.split()[:4] for line in nodes] == [f"accelerate launch --machine_rank {i}".split() for i in (0, 1)]
    assert all("--num_processes 16 --main_process_ip first" in line for line in nodes)
    assert table == "python -m analysis.table results/runs/slurm-7"


def test_every_script_is_executable_and_parses():
    for path in (ROOT / "scripts").glob("accuracy_*.sh"):
        assert path.stat().st_mode & 0o111, path
        assert run(f"bash -n {path}").returncode == 0

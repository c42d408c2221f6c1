"""The accuracy scripts run to a table on a tiny checkpoint of their own family, and say what they cannot do."""

import json
import re
import shutil
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file

from kv_caches.models import model_row
from lmms_eval_plugins.sweeps import load_sweep
from tests import stock_data
from tests.hub import TOKEN, serving
from tests.lmms_eval_plugins.checkpoints import BUILD
from tests.scripts import FAMILIES, TINY, fake, script
from tests.test_readme import ROOT, run


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


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """Variables of someone who is logged in to a hub that has the data sets of lmms-eval's stock tasks."""
    folder = tmp_path_factory.mktemp("hub")
    with serving(stock_data.repositories(folder)) as served:
        home = {"HF_HOME": f"{folder}/home", "HF_TOKEN": TOKEN, "MAX_GENERATED_TOKENS": "4"}
        yield home | {"HF_ENDPOINT": served.url, "HF_HUB_OFFLINE": "0"}


def finished(folder, samples, name, tasks):
    """Whether a folder holds the table of the full cache and TGV-KV at 50 %, on the model of a script's family."""
    table = (folder / "table.md").read_text()
    assert re.search(r"\| full .* 100 % \|", table), table
    assert re.search(r"\| tgv_kv .* 50 % \|", table), table
    assert len(table.splitlines()[0].split("|")) == 2 + 4 + len(tasks)
    assert f"{samples} samples per task" in table
    assert (folder / "score_vs_retention.png").stat().st_size > 5_000


def of_the_family(folder, name, tasks):
    """Whether every task of a sweep has its result, on the model of a script's family."""
    for task in tasks:
        written = json.loads((folder / "tgv_kv-0.50" / f"result.{task}.json").read_text())
        assert written["lmms_eval_model"] == model_row(FAMILIES[name])["wrapper"]
        assert 0 < written["retention"]["max"] <= 0.5


IMAGES = ("accuracy_llava", "accuracy_llava_next", "accuracy_llava_ov", "accuracy_qwen_4b")


@pytest.mark.parametrize(("name", "processes"), [(name, 2 if name == "accuracy_llava" else 1) for name in IMAGES])
def test_an_accuracy_script_runs_to_a_table(name, processes, checkpoint, hub, tmp_path):
    """Stock tasks whose scores need no Java; two processes have a sample each."""
    tasks = stock_data.IMAGE_TASKS[:4]
    env = {"NUM_PROCESSES": "2", "LIMIT": "2"} if processes == 2 else {}
    env |= hub | {"TASKS": ",".join(tasks), "CKPT": checkpoint(FAMILIES[name]), "OUTPUT": f"{tmp_path}/out"}
    result = script(name, **env)
    assert result.returncode == 0, result.stderr
    assert f"[kv] {'2 processes run' if processes == 2 else '1 process runs'} on cpu" in result.stderr
    finished(tmp_path / "out", processes, name, tasks)
    of_the_family(tmp_path / "out", name, tasks)


@pytest.mark.skipif(not shutil.which("java"), reason="captions are scored by Java (Debian: default-jre-headless)")
def test_the_official_loop_runs_the_paper_s_six_tasks_to_a_table(checkpoint, hub, tmp_path):
    env = TINY | hub | {"CKPT": checkpoint("qwen-8B"), "OUTPUT": f"{tmp_path}/out", "LIMIT": "2"}
    result = run("env -u TASKS bash scripts/accuracy_qwen.sh --separate", timeout=600, **env)
    assert result.returncode == 0, result.stderr
    finished(tmp_path / "out", 2, "accuracy_qwen", stock_data.IMAGE_TASKS)
    assert list((tmp_path / "out").glob("*/submissions/*_results.json"))


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


def test_the_video_script_judges_open_answers_before_the_table_is_made(checkpoint, hub, tmp_path):
    out, name = tmp_path / "out", "accuracy_qwen_video"
    env = TINY | hub | {"CKPT": checkpoint(FAMILIES[name]), "OUTPUT": str(out), "MAX_GENERATED_TOKENS": "8"}
    command = f"env -u TASKS bash scripts/{name}.sh"
    result = run(command, KV_JUDGE="none", **env)
    assert result.returncode == 0, result.stderr
    assert "[kv] 1 process runs on cpu" in result.stderr
    assert f"python -m lmms_eval_plugins.judge {out} judges them" in result.stderr
    assert not (out / "table.md").exists()
    result = run(command, KV_JUDGE="exact", **env)
    assert result.returncode == 0, result.stderr
    assert "8 of 8 open answers are judged by the offline rule" in (out / "table.md").read_text()
    finished(out, 1, name, stock_data.VIDEO_TASKS)
    of_the_family(out, name, stock_data.VIDEO_TASKS)


def test_another_family_is_refused(tmp_path):
    result = script("accuracy_qwen", CKPT="tiny_vlm/weights", OUTPUT=f"{tmp_path}/out")
    assert result.returncode == 2
    first, last = result.stderr.splitlines()
    assert first.startswith("error: --model qwen3_vl loads ")
    assert last.startswith("error: the evaluation failed; the whole log is ")


def test_the_accelerate_configurations_are_read():
    found = {path.stem: load_config_from_file(str(path)) for path in (ROOT / "configs" / "accelerate").glob("*.yaml")}
    assert (found["one_machine"].num_machines, found["nodes"].num_machines) == (1, 2)


SLURM = {"SLURM_JOB_ID": "7", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}


def test_the_slurm_template_names_a_variable_that_is_one_letter_off():
    result = run("bash configs/accelerate/slurm.sh", CKPT="a/b", MODEL="qwen3_vl", METHOD="snapkv", **SLURM)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "error: METHOD=snapkv is set, and what this script reads is METHODS: rename it; if it belongs to another "
        "program: env -u METHOD sbatch configs/accelerate/slurm.sh\n"
    )


def test_the_slurm_template_starts_one_launcher_per_node_then_prints_the_table(tmp_path):
    fakes = {
        "srun": 'shift; for node in 0 1; do SLURM_NODEID=$node "$@"; done',
        "scontrol": "echo first; echo second",
        "accelerate": f'echo accelerate "$@"; echo "$LMMS_EVAL_DATASETS_CACHE" >>{tmp_path}/cache',
        "python": 'echo python "$@"',
    }
    for name, body in fakes.items():
        fake(tmp_path / name, body)
    env = SLURM | {"CKPT": "a/b", "MODEL": "qwen3_vl"}
    command = (
        f"unset HF_DATASETS_CACHE LMMS_EVAL_DATASETS_CACHE; PATH={tmp_path}:$PATH bash configs/accelerate/slurm.sh"
    )
    result = run(command, HF_HOME="/nfs/hf", **env)
    assert result.returncode == 0, result.stderr
    *nodes, table = result.stdout.splitlines()
    assert [line.split()[:4] for line in nodes] == [f"accelerate launch --machine_rank {i}".split() for i in (0, 1)]
    assert all("--num_processes 16 --main_process_ip first" in line for line in nodes)
    assert table == "python -m analysis.table results/runs/slurm-7"
    assert (tmp_path / "cache").read_text().split() == ["/nfs/hf/datasets"] * 2

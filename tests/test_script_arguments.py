"""The scripts say what they do and what they would do; what is wrong with a call is one line, and nothing is run."""

import re
import shutil

import pytest

from kv_caches.models import model_row
from lmms_eval_plugins import needs
from tests.lmms_eval_plugins.checkpoints import BUILD
from tests.scripts import FAMILIES, TINY, fake, script
from tests.test_readme import ROOT, run

PLANNED = re.compile(r"^\w+(?:-0\.\d+)? +v1-\w{16}  there: nothing$", flags=re.MULTILINE)
SCRIPTS = [*FAMILIES, "efficiency", "quickstart", "tables", "test"]


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


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("METHOD", "METHODS"),
        ("TASK", "TASKS"),
        ("RETENTIONS", "RETENTION"),
        ("LIMITS", "LIMIT"),
        ("SWEEPS", "SWEEP"),
        ("BATCHSIZE", "BATCH_SIZE"),
        ("CKTP", "CKPT"),
        ("OUTPUTS", "OUTPUT"),
        ("OUTPTU", "OUTPUT"),
        ("CHECKPOINT", "CKPT"),
        ("NUM_PROCESSESS", "NUM_PROCESSES"),
        ("MODEL_TYPES", "MODEL_TYPE"),
        ("MAX_GENERATED_TOKEN", "MAX_GENERATED_TOKENS"),
    ],
)
def test_a_variable_that_is_one_letter_off_is_one_line_that_says_how_to_go_on(wrong, right):
    result = script("accuracy_llava", "--dry-run", **{wrong: "x"})
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"error: {wrong}=x is set, and what this script reads is {right}: rename it; if it belongs to another program: "
        f"env -u {wrong} bash scripts/accuracy_llava.sh\n"
    )


def test_variables_of_other_programs_are_left_alone(tmp_path):
    others = ("OUTPUT_DIR", "INPUT", "MODEL", "TASKS_DIR", "NUM_WORKERS", "LIMIT_CORES", "SESSION")
    env = {"CKPT": "tiny_vlm/weights", "OUTPUT": f"{tmp_path}/out"}
    result = script("accuracy_llava", "--dry-run", **env, **dict.fromkeys(others, "x"))
    assert (result.returncode, result.stderr) == (0, "")


def test_a_dry_run_prints_every_run_and_runs_nothing(tmp_path):
    env = {"CKPT": "tiny_vlm/weights", "OUTPUT": f"{tmp_path}/out", "METHODS": "", "RETENTION": ""}
    result = script("accuracy_llava", "--dry-run", **env)
    assert result.returncode == 0, result.stderr
    assert len(PLANNED.findall(result.stdout)) == 29
    assert "-m lmms_eval_plugins.sweep" in result.stdout.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_a_dry_run_plans_before_the_checkpoint_is_there(tmp_path):
    result = script("accuracy_llava", "--dry-run", OUTPUT=f"{tmp_path}/out")
    assert result.returncode == 3, result.stderr
    assert result.stdout.startswith("2 runs of llava-hf/llava-1.5-7b-hf (chat prompts) on mini_scene\nfull  ")
    assert "cannot run yet: pretrained=llava-hf/llava-1.5-7b-hf: there is no such folder" in result.stdout
    assert "pretrained=llava-hf/llava-1.5-7b-hf\\," in result.stdout.splitlines()[-1]


def test_the_row_of_a_checkpoint_may_be_named_and_must_fit_it(tmp_path):
    env = {"CKPT": "tiny_vlm/weights", "OUTPUT": f"{tmp_path}/out"}
    result = script("accuracy_llava", "--dry-run", "--separate", MODEL_TYPE="tiny-vlm", **env)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("MODEL_TYPE=tiny-vlm") == 2
    result = script("accuracy_llava", "--dry-run", MODEL_TYPE="llava-7B", **env)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: MODEL_TYPE='llava-7B' contradicts the loaded model: hidden_size 192 (expected 4096)")
    assert line.endswith("use tiny-vlm")


def test_without_gpu_and_checkpoint_video_runs_on_the_embedded_model_with_the_offline_judge(tmp_path):
    command = "env -u TASKS -u CKPT bash scripts/accuracy_qwen_video.sh --dry-run"
    result = run(command, **TINY | {"OUTPUT": f"{tmp_path}/out"})
    assert result.returncode == 0, result.stderr
    assert "There is no GPU, and CKPT is not set: tiny-video of configs/models on mini_video" in result.stderr
    assert "judged by KV_JUDGE=exact" in result.stderr
    assert "cannot run yet" not in result.stdout
    assert "pretrained=tiny_vlm/video/weights\\," in result.stdout.splitlines()[-1]
    assert "max_pixels" not in result.stdout


def test_video_on_a_checkpoint_says_what_the_judge_needs(tmp_path):
    checkpoint = BUILD[model_row("qwen-8B-video")["model_type"]](tmp_path / "checkpoint")
    env = {"TASKS": "videott_no_leading_oe", "CKPT": str(checkpoint), "OUTPUT": f"{tmp_path}/out"}
    result = script("accuracy_qwen_video", "--dry-run", OPENAI_API_KEY="", GPT_EVAL_MODEL_NAME="", **env)
    assert result.returncode == 3, result.stderr
    assert len(PLANNED.findall(result.stdout)) == 2
    (error,) = result.stderr.splitlines()
    assert error.startswith("error: settle what ")
    assert error.endswith("then run the same again without --dry-run")
    assert "cannot run yet: --tasks videott_no_leading_oe: answers are judged by another model" in result.stdout
    assert ",max_pixels=203840 " in result.stdout.splitlines()[-1].replace("\\,", ",")


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
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("quickstart", ["--limmit", "3"], "unknown option '--limmit'"),
        ("quickstart", ["--limit", "abc"], "--limit 'abc' must be a whole number from 1"),
        ("quickstart", ["--limit"], "--limit '' must be a whole number from 1"),
        ("quickstart", ["--output"], "--output needs a folder"),
        ("tables", ["--allow"], "unknown option '--allow'"),
        ("tables", ["/nowhere"], "/nowhere: there is no such folder"),
        ("accuracy_qwen", ["--dryrun"], "unknown option '--dryrun'"),
        ("accuracy_qwen", ["chartqa"], "unknown option 'chartqa'"),
        ("setup", [], "this is a part of the other scripts"),
        ("accuracy", ["--help"], "this is a part of the other scripts"),
        ("names", [], "this is a part of the other scripts"),
    ],
)
def test_a_wrong_argument_is_one_clear_line(name, arguments, message):
    result = script(name, *arguments)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_every_script_is_executable_and_parses():
    for path in (ROOT / "scripts").glob("accuracy_*.sh"):
        assert path.stat().st_mode & 0o111, path
        assert run(f"bash -n {path}").returncode == 0


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_may_change_while_it_runs(name, tmp_path):
    """bash reads on after every program it ran; these scripts are read to the end before anything takes time."""
    folder = tmp_path / "scripts"
    shutil.copytree(ROOT / "scripts", folder)
    rewrite = f'printf "exit 77\\n%.0s" {{1..2000}} >{folder}/{name}.sh; env true'
    (folder / "setup.sh").write_text((folder / "setup.sh").read_text() + f"setup_environment() {{ {rewrite}; }}\n")
    tools = {"python": "echo llava-hf/any llava_hf 0", "accelerate": "echo [kv]", "ruff": "", "mypy": ""}
    for tool, body in tools.items():
        fake(tmp_path / "bin" / tool, f'echo "{tool} $*" >>{tmp_path}/called\n{body}')
    (tmp_path / "results").mkdir()
    arguments = {"tables": str(tmp_path / "results"), "quickstart": f"--output {tmp_path}/out"}.get(name, "")
    command = f"PATH={tmp_path}/bin:$PATH bash {folder}/{name}.sh {arguments}"
    result = run(command, **TINY | {"OUTPUT": f"{tmp_path}/out", "CKPT": "any"})
    assert (folder / f"{name}.sh").read_text().startswith("exit 77")
    assert result.returncode == 0, result.stderr
    last = {"tables": "analysis.", "quickstart": "analysis.report", "test": "pytest", "efficiency": "benchmarks."}
    assert f"python -m {last.get(name, 'analysis.table')}" in (tmp_path / "called").read_text().splitlines()[-1]

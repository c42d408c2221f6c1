"""What is missing beside the settings is found before weights are loaded, all of it at once."""

import importlib.metadata
import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace

import huggingface_hub
import pytest
from lmms_eval.utils import simple_parse_args_string

from kv_caches import ConfigError
from lmms_eval_plugins import checks, imports, memory, preflight, sweep
from lmms_eval_plugins.errors import RunStopped
from lmms_eval_plugins.families import FAMILIES
from lmms_eval_plugins.settings import resolve


@pytest.fixture(autouse=True)
def nothing_missing(monkeypatch):
    """Tests take away one thing each."""
    monkeypatch.setattr(checks.data_sets, "problems", lambda wanted: [])
    monkeypatch.setattr(checks.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 40))
    for name in ("OPENAI_API_KEY", "AZURE_API_KEY", "GPT_EVAL_MODEL_NAME"):
        monkeypatch.setenv(name, "key")


def problems(*argv):
    return checks.problems(preflight.parse(argv), None)


def test_nothing_is_found_where_nothing_is_missing():
    assert problems("--tasks", "mini_vlm,chartqa,coco2014_cap_val,videott_all,mmmu*") == []


@pytest.mark.parametrize("argv", [[], ["--tasks", ""], ["--tasks", " , "]])
def test_a_run_without_tasks_is_a_problem(argv):
    assert problems(*argv) == [
        "--tasks is missing: what is to be scored, such as mini_scene (all: lmms-eval --tasks list)"
    ]


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"])
@pytest.mark.parametrize("value", ["abc", "", "-1", "1.5", "²", "9" * 5000])
def test_a_launcher_that_gives_no_number_is_one_line(name, value, monkeypatch, capsys):
    monkeypatch.setenv(name, value)
    (problem,) = problems("--tasks", "mini_chart")
    assert problem.startswith(f"{name}={value[:60]}")
    assert "a launcher sets it: unset it to run one process" in problem
    with pytest.raises(RunStopped):
        checks.stop_on([problem])
    assert capsys.readouterr().err == f"error: {problem}\n"


def test_a_process_of_a_number_that_there_is_not_is_one_line(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert problems("--tasks", "mini_chart") == []
    monkeypatch.setenv("WORLD_SIZE", "1")
    (problem,) = problems("--tasks", "mini_chart")
    assert problem == "RANK=1: there are WORLD_SIZE=1 processes, counted from 0; unset both to run one process"


@pytest.mark.parametrize("given", ["tiny_vlm", "pretrained=a,b", "batch_size=²", "fps=" + "9" * 5000])
def test_model_arguments_that_are_none_are_one_line(given):
    with pytest.raises(ConfigError, match=r"--model_args .*: name=value, separated by commas, is needed"):
        preflight.model_args(preflight.parse(["--model_args", given]))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            ["--limit", "abc"],
            "--limit abc: a number of samples from 1, or a share below 1, is needed (-1: all samples)",
        ),
        *((["--limit", value], f"--limit {value}: a number of samples") for value in ("0", "2.5", "nan", "inf", "²")),
        (["--limit=-2"], "--limit -2: a number of samples"),
        (["--offset", "-1"], "--offset=-1: a whole number from 0 is needed"),
        (["--offset", "1.5"], "--offset=1.5: a whole number from 0 is needed"),
        (["--gen_kwargs", "temperature"], "--gen_kwargs temperature: name=value, separated by commas, is needed"),
        (["--gen_kwargs", "top_k=" + "9" * 5000], "--gen_kwargs top_k=999"),
        (["--gen_kwargs", "temperature=nan"], "--gen_kwargs temperature=nan: a number from 0 is needed"),
    ],
)
def test_arguments_that_lmms_eval_would_come_to_later_are_checked(given, line):
    (problem,) = problems("--tasks", "mini_chart", *given)
    assert problem.startswith(line)


@pytest.mark.parametrize("limit", ["-1", "0.25", "1e-3", "3", "8.0", " 2"])
def test_limits_that_can_be_are_no_problem(limit):
    assert problems("--tasks", "mini_chart", f"--limit={limit}", "--offset", "2", "--gen_kwargs", "top_k=1") == []


@pytest.mark.parametrize("name", ["x" * 5000, "a\nb", "a\x00b", "\udcff", "\x1b[31mred", "\u202e"])
def test_an_odd_name_of_a_task_is_one_line_that_can_be_printed(name):
    (problem,) = problems("--tasks", name)
    assert problem.startswith("--tasks: there is no task ")
    assert problem.isprintable()
    assert len(problem) < 500


@pytest.mark.parametrize("name", ["x" * 5000, "/dev/null", "/dev/null/deeper"])
def test_records_need_a_folder(name, monkeypatch):
    monkeypatch.setenv("KV_RECORDS_DIR", name)
    found = problems("--tasks", "mini_chart")
    assert len(found) == (name[0] == "/")
    assert all("records go there, and /dev/null is a file" in problem for problem in found)


@pytest.mark.parametrize("task", ["coco2014_cap_val", "coco_cap", "textcaps_val", "nocaps_val", "flickr30k_test"])
def test_caption_metrics_need_java(task, monkeypatch):
    monkeypatch.setattr(checks.shutil, "which", lambda name: None)
    (problem,) = problems("--tasks", f"{task},chartqa,coco2014_cap_test")
    assert "the caption metrics need Java" in problem
    assert "chartqa" not in problem
    assert "coco2014_cap_test" not in problem
    assert problems("--tasks", task, "--predict_only") == []


@pytest.mark.parametrize("task", ["videott_all_audio", "mmvet", "llava_in_the_wild"])
def test_judged_tasks_need_a_key(task, monkeypatch):
    for name in ("OPENAI_API_KEY", "AZURE_API_KEY"):
        monkeypatch.delenv(name)
    (problem,) = problems("--tasks", f"videott_single_mc,{task},chartqa")
    assert problem.startswith(f"--tasks {task}: answers are judged by another model, and OPENAI_API_KEY")


@pytest.mark.parametrize(
    ("tasks", "named"),
    [
        ("mathvision_test,chartqa", "mathvision_test"),  # imports it in a `try`, and uses it
        ("chartqa,emma", "emma"),
        ("stare_2d_va", "stare"),
    ],
)
def test_tasks_that_cannot_work_on_this_python_are_named(tasks, named, monkeypatch):
    def broken(name):
        assert name == "latex2sympy2"
        raise ModuleNotFoundError("No module named 'typing.io'; 'typing' is not a package")

    monkeypatch.setattr(imports.importlib, "import_module", broken)
    found = [problem for problem in problems("--tasks", tasks) if "latex2sympy2" in problem]
    assert found, problems("--tasks", tasks)
    assert named in found[0]
    assert "chartqa" not in found[0]
    assert found[0].endswith(
        "the code imports latex2sympy2, which cannot be used here (No module named 'typing.io'; 'typing' is not a "
        "package; it needs Python 3.12 or older)"
    )


def test_tasks_that_need_a_module_that_is_not_there_are_named(monkeypatch):
    find = imports.importlib.util.find_spec
    monkeypatch.setattr(imports.importlib.util, "find_spec", lambda name: None if name == "decord" else find(name))
    monkeypatch.delitem(sys.modules, "decord", raising=False)
    assert problems("--tasks", "longvideobench_val_v,videomme,mini_video,videott_all") == [
        "--tasks longvideobench_val_v: the code imports decord, which cannot be used here (it is not installed; it has "
        "wheels for Linux on x86_64 and for Windows only)"
    ]


def test_a_full_disk_is_seen_where_the_records_go(monkeypatch, environment):
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: SimpleNamespace(free=5 << 20))
    assert problems("--tasks", "mini_chart") == [
        f"{environment}: 5 MiB are free on its disk; records and results need 1 GiB"
    ]


def test_an_unknown_task_is_a_problem_but_not_with_task_files_of_ones_own():
    (problem,) = problems("--tasks", "mini_documnt")
    assert problem.startswith("--tasks: there is no task mini_documnt. Did you mean 'mini_document'?")
    assert problems("--tasks", "mini_documnt", "--include_path", "/elsewhere") == []


def test_other_versions_are_a_notice(tmp_path, capsys, monkeypatch):
    path = tmp_path / "requirements.txt"
    path.write_text("# set\ntorch==1.0\ntorchvision==0.1\ntransformers==1.0 ; python_full_version < '3'\n")
    version = importlib.metadata.version("torch")
    monkeypatch.setattr(checks, "REQUIREMENTS", path)
    checks.print_notices()
    assert capsys.readouterr().out == f"[kv] not the tested set (requirements.txt): torch {version} (tested: 1.0)\n"
    monkeypatch.setattr(checks, "REQUIREMENTS", tmp_path / "none.txt")
    checks.print_notices()
    assert capsys.readouterr().out == ""


@pytest.fixture
def tiny(checkpoint):
    """Settings of a run of the tiny LLaVA, and the size of its weights in float32."""
    given = {"pretrained": str(checkpoint("llava")), "device_map": "cpu", "batch_size": 8}
    stored = sum(path.stat().st_size for path in checkpoint("llava").glob("*.safetensors"))
    return resolve(FAMILIES["llava_hf"], "chat", given), stored


def test_gpu_memory_is_estimated_from_the_configuration(tiny):
    run, stored = tiny
    assert memory.weight_bytes(run) == pytest.approx(stored, rel=0.1)
    assert (memory.token_bytes(run), memory.longest(run)) == (2 * 3 * 2 * 16 * 4, 4096)


def test_only_weights_that_do_not_fit_beside_one_short_prompt_stop_a_run(tiny, monkeypatch):
    run, stored = tiny
    said = []
    for free in (stored, stored + 600 * memory.token_bytes(run), 1 << 40):
        monkeypatch.setattr(memory, "free_bytes", lambda run, free=free: free)
        said.append((list(memory.problems(run)), list(memory.notices(run))))
    (((problem,), _), (none, (notice,)), nothing) = said
    assert "of one prompt of 512 tokens do not fit into the" in problem
    assert none == []
    assert "--batch_size 8 with prompts of 4096 tokens would need 32768. A batch that does not fit is tried" in notice
    assert nothing == ([], [])


def test_quantized_weights_count_at_the_bits_they_have(tiny, checkpoint, tmp_path):
    run, stored = tiny
    folder = shutil.copytree(checkpoint("llava"), tmp_path / "quantized")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: stored // 8])
    run.hf_config.quantization_config = {"load_in_4bit": True}
    assert memory.weight_bytes(replace(run, pretrained=str(folder))) == stored // 8
    path.unlink()
    unknown = replace(run, pretrained=str(folder))
    assert memory.weight_bytes(unknown) is None
    assert list(memory.problems(unknown)) == list(memory.notices(unknown)) == []


def test_a_notice_about_memory_is_printed_once_for_all_processes(tiny, capsys, monkeypatch):
    run = replace(tiny[0], device="cuda:0")
    monkeypatch.setattr(memory, "free_bytes", lambda run: tiny[1] + 600 * memory.token_bytes(run))
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        checks.print_notices(run)
    assert capsys.readouterr().out.count("A batch that does not fit is tried sample by sample") == 1


def test_every_problem_is_said_at_once_and_before_lmms_eval_starts(monkeypatch, capsys):
    monkeypatch.setattr(preflight.logger, "configure", lambda **_: None)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "")
    monkeypatch.setattr(checks.shutil, "which", lambda name: None)
    monkeypatch.delenv("OPENAI_API_KEY")
    wrong = [
        "--model",
        "llava_hf",
        "--model_args",
        "pretrained=/no/such",
        "--tasks",
        "coco2014_cap_val,videott_all_audio,mini_x",
    ]
    expected = ["pretrained=/no/such", "no task mini_x", "need Java", "OPENAI_API_KEY is not set"]

    def said():
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == len(expected)
        for line, part in zip(lines, expected, strict=True):
            assert line.startswith("error: ")
            assert part in line

    monkeypatch.setattr(sys, "argv", ["/somewhere/lmms_eval/__main__.py", *wrong])
    with pytest.raises(RunStopped):
        preflight.prepare_command_line()
    said()
    with pytest.raises(RunStopped):
        sweep.main(wrong)
    said()


def test_a_dry_run_shows_the_plan_and_then_what_is_missing(checkpoint, monkeypatch, capsys):
    monkeypatch.setattr(checks.shutil, "which", lambda name: None)
    model = ["--model", "llava_hf", "--model_args", f"pretrained={checkpoint('llava')},device_map=cpu"]
    assert sweep.main(["--sweep", "quickstart", "--dry-run", *model, "--tasks", "textcaps_val"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 5 + 1
    assert lines[-1].startswith("cannot run yet: --tasks textcaps_val: the caption metrics need Java")


@pytest.mark.parametrize("name", ["/not/fetched/yet", "someone/some-model"])
def test_a_dry_run_plans_for_a_checkpoint_that_is_not_there_yet(name, monkeypatch, capsys):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    arguments = ["--sweep", "quickstart", "--model", "llava_hf", "--model_args", f"pretrained={name},device_map=cpu"]
    arguments += ["--tasks", "mini_chart"]
    assert sweep.main([*arguments, "--dry-run"]) == 3
    first, *runs, last = capsys.readouterr().out.splitlines()
    assert first == f"5 runs of {name} (chat prompts) on mini_chart"
    assert [line.split()[0] for line in runs] == [
        "full",
        *(f"tgv_kv-{share}" for share in ("0.50", "0.80", "0.90", "0.95")),
    ]
    assert last.startswith(f"cannot run yet: pretrained={name}: there is no such folder")
    with pytest.raises(RunStopped) as stopped:
        sweep.main(arguments)
    assert stopped.value.message == last.removeprefix("cannot run yet: ")


def test_what_can_never_run_is_not_planned(capsys):
    arguments = ["--model", "llava_hf", "--model_args", "pretrained=/not/fetched/yet", "--methods", "tgv_vk"]
    with pytest.raises(RunStopped, match="1"):
        sweep.main(["--dry-run", *arguments, "--tasks", "mini_chart"])
    said = capsys.readouterr()
    assert said.out == ""
    assert "Did you mean 'tgv_kv'?" in said.err


@pytest.mark.parametrize(
    ("arguments", "device", "there", "message"),
    [
        (
            "attn_implementation=flash_attention_2,device_map=cpu",
            "cpu",
            True,
            "needs a GPU, and this run is on the CPU",
        ),
        (
            "attn_implementation=flash_attention_2",
            "cuda",
            False,
            "flash_attention_2 in --model_args: flash-attn is not in",
        ),
        (
            "attn_implementation=flash_attention_3",
            "cuda",
            False,
            "flash_attention_3 in --model_args: flash-attn-3 is not",
        ),
        ("attn_implementation=flash_attention_2,dtype=float32", "cuda", True, "no dtype=float32; use dtype=bfloat16"),
        ("attn_implementation=flash_attention_2,dtype=bfloat16", "cuda", True, None),
        ("attn_implementation=sdpa", "cuda", False, None),
    ],
)
def test_a_flash_kernel_that_could_not_run_is_found_before_weights(
    arguments, device, there, message, checkpoint, monkeypatch
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: device == "cuda")
    monkeypatch.setattr(memory, "free_bytes", lambda run: 1 << 40)
    flash = {version: (package, lambda **_: there) for version, (package, _) in checks._FLASH.items()}
    monkeypatch.setattr(checks, "_FLASH", flash)
    args = simple_parse_args_string(f"pretrained={checkpoint('llava')},{arguments}")
    found = checks.problems(preflight.parse(["--tasks", "mini_chart"]), resolve(FAMILIES["llava_hf"], "chat", args, {}))
    assert len(found) == (message is not None)
    assert all(message in problem and "attn_implementation=sdpa" in problem for problem in found)


def test_a_switch_that_is_neither_on_nor_off_is_a_problem(monkeypatch):
    monkeypatch.setenv("KV_RECORD_KEPT", "yes")
    assert problems("--tasks", "mini_chart") == ["KV_RECORD_KEPT=yes: 1 (yes) or 0 (no) is needed"]

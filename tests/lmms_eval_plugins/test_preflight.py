"""lmms-eval's command line is checked and completed before lmms-eval reads it."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from kv_caches.config import KNOWN_VARIABLES
from lmms_eval_plugins import preflight
from lmms_eval_plugins.asked import asks_for_us
from lmms_eval_plugins.errors import RunStopped
from lmms_eval_plugins.manifest import model_manifests


@pytest.fixture
def command_line(monkeypatch):
    """Runs the preflight on the arguments of a command and returns the completed ones."""
    monkeypatch.setattr(preflight.logger, "configure", lambda **_: None)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "")

    def complete(*argv):
        monkeypatch.setattr(sys, "argv", ["/somewhere/lmms_eval/__main__.py", *argv])
        preflight.prepare_command_line()
        return sys.argv[1:]

    return complete


def test_the_fingerprint_is_added_to_the_model_arguments(command_line, checkpoint, monkeypatch):
    args = f"pretrained={checkpoint('llava')},device_map=cpu"
    given = ["--model", "llava_hf", "--model_args", args, "--tasks", "mini_chart"]
    before = command_line(*given)[-1]
    assert before.startswith(f"--model_args={args},kv_fingerprint=v1-")
    monkeypatch.setenv("KV_CACHE_TYPE", "none")
    completed = command_line(*given)
    assert completed[-1] not in (before, args)
    assert f"--include_path={preflight.TASKS_DIR}" in completed
    with pytest.raises(RunStopped, match="1"):
        command_line(*given[:3], before.removeprefix("--model_args="))


def test_other_models_and_other_programs_are_left_alone(command_line, monkeypatch):
    given = ["--model", "dummy", "--tasks", "mme", "--include_path", "/tmp"]
    assert command_line(*given) == given
    monkeypatch.setattr(sys, "argv", ["pytest", "--model", "llava_hf"])
    preflight.prepare_command_line()
    assert sys.argv == ["pytest", "--model", "llava_hf"]


def test_eviction_asked_of_a_model_that_is_not_served_is_refused(command_line, monkeypatch, capsys):
    monkeypatch.setenv("KV_CACHE_TYPE", "tgv_kv")
    with pytest.raises(RunStopped):
        command_line("--model", "qwen2_vl", "--tasks", "mme", "--include_path", "/tmp")
    assert capsys.readouterr().err == (
        "error: KV_CACHE_TYPE is set, but --model qwen2_vl is not served by this project and would keep its full "
        "cache; use llava_hf, qwen3_vl, qwen2_5_vl, or unset it. Did you mean 'qwen2_5_vl'?\n"
    )


def test_a_bad_setting_ends_the_run_with_one_line(command_line, capsys):
    with pytest.raises(RunStopped) as stopped:
        command_line("--model", "llava_hf", "--model_args", "pretrained=/no/such/folder", "--tasks", "mini_chart")
    assert stopped.value.code == 1
    assert capsys.readouterr().err == "error: pretrained=/no/such/folder: there is no such folder\n"


def test_a_configuration_file_with_the_response_cache_is_refused(command_line, tmp_path, capsys):
    path = tmp_path / "runs.yaml"
    path.write_text("- model: llava_hf\n  model_args: pretrained=x\n  use_cache: cache\n")
    with pytest.raises(RunStopped):
        command_line("--config", str(path))
    assert "would mix the answers of different methods" in capsys.readouterr().err


def test_lmms_evals_own_error_messages_end_the_run(capsys):
    def log(message, name="lmms_eval.__main__"):
        preflight.stop_on_error_message({"name": name, "message": message})

    log("anything else")
    log("Error during evaluation: in another program", name="other")
    with pytest.raises(RunStopped):
        log("Tasks were not found: mini_documnt\n    Try `lmms-eval --tasks list`")
    with pytest.raises(RunStopped):
        log("Error during evaluation: it broke. Please set --verbosity")
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("error: --tasks: there is no task mini_documnt. Did you mean 'mini_document'?")
    assert "it broke" in second


def test_what_goes_wrong_in_the_plugin_never_leaves_the_stock_wrappers_in_place(monkeypatch):
    monkeypatch.setattr(preflight, "prepare_command_line", lambda: SimpleNamespace().missing)
    with pytest.raises(SystemExit, match="cannot start"):
        model_manifests()


def test_the_wrappers_are_registered_although_the_plugin_is_imported_first(site):
    code = (
        "import lmms_eval_plugins.manifest, lmms_eval.models as models;"
        "print(models.MODEL_REGISTRY_V2.resolve('llava_hf').class_path)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=site.environment, capture_output=True, text=True)
    assert done.stdout.split() == ["lmms_eval_plugins.models.llava_hf.LlavaHfChat"], done.stderr


def test_without_a_variable_nothing_is_registered_or_checked(monkeypatch):
    monkeypatch.delenv("KV_RECORDS_DIR")  # of every test
    monkeypatch.setattr(preflight, "prepare_command_line", lambda: SimpleNamespace().missing)
    assert model_manifests() == []


@pytest.mark.parametrize(
    "name", [*KNOWN_VARIABLES, "IMAGE_MAX_TOKEN_NUM", "VISION_ASPECT_RATIO", "KV_CACHE_TYP", "PRUNE_RATE"]
)
def test_every_variable_asks_for_the_wrappers_and_so_does_a_misspelt_one(name):
    assert not asks_for_us({"PATH": "/bin", "HF_HOME": "/hub"}, ["python"])
    assert asks_for_us({name: ""}, ["python"])


def test_a_configuration_file_asks_by_the_variables_of_its_runs(tmp_path):
    path, program = tmp_path / "runs.yaml", "/somewhere/lmms_eval/__main__.py"
    path.write_text("- model: llava_hf\n- model: llava_hf\n  env:\n    KV_CACHE_TYPE: none\n")
    assert asks_for_us({}, [program, "--config", str(path)])
    assert asks_for_us({}, [program, f"--config={path}"])
    assert not asks_for_us({}, ["/somewhere/other.py", "--config", str(path)])
    for text in ("- model: llava_hf\n  env:\n    HF_HOME: x\n", "model: llava_hf\nenv: KV_CACHE_TYPE\n", "{", "3"):
        path.write_text(text)
        assert not asks_for_us({}, [program, "--config", str(path)])
    assert not asks_for_us({}, [program, "--config", str(tmp_path / "none.yaml")])
    assert not asks_for_us({}, [program, "--config"])


def test_every_model_name_has_both_kinds():
    for manifest in model_manifests():
        for path, simple in ((manifest.simple_class_path, True), (manifest.chat_class_path, False)):
            module, name = path.rsplit(".", 1)
            assert getattr(__import__(module, fromlist=[name]), name).is_simple is simple

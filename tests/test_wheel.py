"""A wheel in a fresh environment, used from a folder that is no clone; and lmms-eval beside it, asked for nothing."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from analysis.paper import paper_numbers
from lmms_eval_plugins.asked import VARIABLES
from tests.test_readme import ROOT

PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
INSTALL, USE = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)
STOCK = """
import sys
sys.argv = ["/somewhere/lmms_eval/__main__.py", "--model", "llava_hf", "--tasks", "mme"]
from lmms_eval import models
builtin = {manifest.model_id: manifest for manifest in models._build_builtin_manifests()}
registered = models.MODEL_REGISTRY_V2
assert {name: registered.get_manifest(name) for name in registered.list_canonical_model_ids()} == builtin
print(sys.argv[1:], [name for name in ("kv_caches", "lmms_eval_plugins.preflight") if name in sys.modules])
"""
LIBRARY = """
import torch
from transformers import AutoModelForImageTextToText
from analysis.paper import paper_numbers
from kv_caches import KVConfig, attach
from kv_caches.methods import ablation
from tiny_vlm import MODEL_DIR
import tgv_kv_harness
model = AutoModelForImageTextToText.from_pretrained(MODEL_DIR)
with attach(model, KVConfig(method="ablation", retention=0.5, model_type="tiny-vlm")) as attachment:
    model.generate(input_ids=torch.arange(20, 40)[None], max_new_tokens=2, do_sample=False)
    print(attachment.take_records()[0]["retention_achieved"], len(paper_numbers()), tgv_kv_harness.CLONE)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from the files that git knows, in a copy: building leaves folders behind."""
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    shell(INSTALL.splitlines()[0] + " --no-build-isolation", source, VIRTUAL_ENV=sys.prefix)
    return next((source / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Runs commands in a fresh environment, in a folder of its own; every package but ours is that of the tests."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder / "venv", symlinks=True)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    environment = {"PATH": f"{folder}/venv/bin:{os.environ['PATH']}", "VIRTUAL_ENV": f"{folder}/venv"}
    shell(f"{INSTALL.splitlines()[1]} --no-deps --no-index".replace("dist/*.whl", str(wheel)), folder, **environment)
    return lambda command: shell(command, folder, **environment)


def shell(command, folder, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(VARIABLES) and k != "PYTHONPATH"}
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-ec", command], cwd=folder, env=env | path | more, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_has_the_files_beside_the_code_and_no_generic_folders(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    packages = {"analysis", "kv_caches", "lmms_eval_plugins", "tgv_kv_harness", "tiny_vlm"}
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == packages
    kept = [path for top in ("configs", "results/paper") for path in (ROOT / top).rglob("*") if path.is_file()]
    kept.append(ROOT / "requirements.txt")
    expected = {f"tgv_kv_harness/files/{path.relative_to(ROOT)}" for path in kept}
    assert {name for name in names if name.startswith("tgv_kv_harness/files/")} == expected


def test_the_commands_of_the_page_run_in_any_folder(installed):
    output = installed(USE)
    assert "look_m" in output
    assert "[kv] KV cache: tgv_kv (paper) keeps 50 % of the prompt's entries" in output
    assert "|mini_scene|" in output
    assert "5 configurations in" in output
    assert re.search(r"^tgv_kv +5 %", output, flags=re.MULTILINE)
    assert installed("grep -L '\"git_commit\": null' grid/*/result.*.json") == ""


def test_the_library_and_the_papers_numbers(installed):
    shown = installed(f"python - <<'END'\n{LIBRARY}END")
    assert shown.split() == ["0.5", str(len(paper_numbers())), "None"]


def test_without_a_variable_lmms_eval_is_as_if_it_were_not_there(installed):
    assert installed(f"python - <<'END'\n{STOCK}END").strip() == "['--model', 'llava_hf', '--tasks', 'mme'] []"

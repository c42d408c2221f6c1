"""A wheel in a fresh environment, used from a folder that is no clone; and lmms-eval beside it, asked for nothing."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from analysis.paper import paper_numbers
from kv_caches import listing
from lmms_eval_plugins.asked import VARIABLES
from tests.test_readme import ROOT

TINY = ["--model", "llava_hf", "--model_args", "pretrained=tiny_vlm/weights,device_map=cpu", "--tasks", "mini_scene"]
TINY += ["--limit", "1"]
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
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(made), str(source))
    return next(made.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Runs the environment's Python in a folder of its own; every package but ours is that of the tests."""
    folder = tmp_path_factory.mktemp("elsewhere")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    pip("--python", str(python), "install", "--no-index", str(wheel))
    env = {k: v for k, v in os.environ.items() if not k.startswith(VARIABLES) and k != "PYTHONPATH"}

    def run(*arguments, **more):
        done = subprocess.run([python, *arguments], cwd=folder, env=env | more, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def pip(*arguments):
    done = subprocess.run([sys.executable, "-m", "pip", *arguments, "--no-deps"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_has_the_files_beside_the_code_and_no_generic_folders(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "analysis",
        "kv_caches",
        "lmms_eval_plugins",
        "tgv_kv_harness",
        "tiny_vlm",
    }
    kept = [path for top in ("configs", "results/paper") for path in (ROOT / top).rglob("*") if path.is_file()]
    kept.append(ROOT / "requirements.txt")
    assert {f"tgv_kv_harness/files/{path.relative_to(ROOT)}" for path in kept} == {
        name for name in names if name.startswith("tgv_kv_harness/files/")
    }


def test_library_list_and_paper_numbers(installed):
    assert installed("-m", "kv_caches", "list", "--markdown").strip() == listing.markdown(listing.rows())
    assert installed("-c", LIBRARY).split() == ["0.5", str(len(paper_numbers())), "None"]


def test_one_configuration_by_lmms_evals_command(installed):
    method = {"KV_CACHE_TYPE": "tgv_kv", "PRUNE_RATIO": "0.5", "MODEL_TYPE": "tiny-vlm"}
    output = installed("-m", "lmms_eval", *TINY, "--output_path", "by-hand", **method)
    assert "[kv] KV cache: tgv_kv (paper) keeps 50 % of the prompt's entries" in output
    assert "|mini_scene|" in output


def test_a_sweep_and_its_table(installed):
    output = installed("-m", "lmms_eval_plugins.sweep", "--sweep", "quickstart", *TINY, "--output_path", "sweep")
    assert "5 configurations in" in output
    assert "tgv_kv" in installed("-m", "analysis.table", "sweep")


def test_without_a_variable_lmms_eval_is_as_if_it_were_not_there(installed):
    assert installed("-c", STOCK).strip() == "['--model', 'llava_hf', '--tasks', 'mme'] []"

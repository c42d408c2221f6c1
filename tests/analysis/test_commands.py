"""Every command explains itself, and needs no torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = ("artefacts", "coverage", "modality_gap", "pareto", "report", "retention_map", "speed", "table", "tables")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_explains_itself_without_torch(name):
    code = (
        "import runpy, sys\n"
        "sys.modules.update(torch=None, transformers=None, kv_caches=None, lmms_eval_plugins=None)\n"
        f"sys.argv = ['analysis.{name}', '--help']\n"
        f"runpy.run_module('analysis.{name}', run_name='__main__')"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"usage: python -m analysis.{name}")


def test_the_script_says_what_it_makes_and_what_is_missing(tmp_path):
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "VIRTUAL_ENV": sys.prefix}

    def run(*arguments):
        command = ["bash", "scripts/tables.sh", *arguments]
        return subprocess.run(command, cwd=ROOT, env=os.environ | path, capture_output=True, text=True, timeout=300)

    assert run("--help").stdout.startswith("usage: bash scripts/tables.sh")
    found = run(str(tmp_path))
    assert found.returncode == 2
    assert f"error: {tmp_path}: no finished run in here" in found.stderr

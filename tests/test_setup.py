"""scripts/setup.sh: which Python it takes, what it says of others, and paths where GNU tools are not there."""

import os
import re
import subprocess
import sys

import pytest

from tests.scripts import fake
from tests.test_readme import README, ROOT

BASH = "/bin/bash"
WORDS = (
    "realpath",
    "readlink",
    "nproc",
    "mapfile",
    "readarray",
    "declare -A",
    "local -[An]",
    "sed -i",
    "flock",
    "date -d",
)
ONLY_GNU = r"\b(" + "|".join(WORDS) + r")\b|\w(,,|\^\^)\}|grep -\w*P|/proc/"


def python(folder, name, version, venv=True):
    """A Python of that version, as far as set-up can see."""
    lines = ["import platform, sys", f"sys.version_info = {(*version, 1, 'final', 0)}"]
    lines.append(f"platform.python_version = lambda: '{version[0]}.{version[1]}.1'")
    if not venv:
        lines.append("sys.modules['ensurepip'] = None")
    path = folder / f"{name}.txt"
    path.write_text("\n".join([*lines, "exec(sys.argv[1])"]))
    fake(folder / name, f"exec '{sys.executable}' -c \"$(<'{path}')\" \"$2\"")


def setup(command, path, **env):
    """A function of setup.sh, with the programs of one folder only."""
    env = {"PATH": str(path), **env}
    return subprocess.run(
        [BASH, "-c", f"source scripts/setup.sh; {command}"], cwd=ROOT, env=env, capture_output=True, text=True
    )


@pytest.mark.parametrize("minor", range(10, 15))
def test_every_python_from_3_10_to_3_14_is_taken(minor, tmp_path):
    python(tmp_path, "python3", (3, minor))
    assert setup("find_python", tmp_path).stdout == "python3\n"


def test_one_on_which_every_task_works_is_taken_first(tmp_path):
    for minor in (10, 13, 14):
        python(tmp_path, f"python3.{minor}", (3, minor))
    assert setup("find_python", tmp_path).stdout == "python3.13\n"
    python(tmp_path, "python3.12", (3, 12), venv=False)
    assert setup("find_python", tmp_path).stdout == "python3.13\n"
    python(tmp_path, "python3.11", (3, 11))
    assert setup("find_python", tmp_path).stdout == "python3.11\n"
    assert setup("find_python", tmp_path, PYTHON=f"{tmp_path}/python3.14").stdout == f"{tmp_path}/python3.14\n"


@pytest.mark.parametrize(
    ("version", "named", "line"),
    [
        ((3, 9), "", "Python 3.10 to 3.14 is needed; python3 is Python 3.9.1. Set PYTHON=/path/to/python3.12"),
        ((3, 15), "", "Python 3.10 to 3.14 is needed; python3 is Python 3.15.1. Set PYTHON=/path/to/python3.12"),
        (None, "", "Python 3.10 to 3.14 is needed; python3 is not there, or no Python. Set PYTHON=/path/to/python3.12"),
        ((3, 9), "python3", "PYTHON=python3 is Python 3.9.1; Python 3.10 to 3.14 is needed"),
        ((3, 12), "python4", "PYTHON=python4 is not there, or no Python; Python 3.10 to 3.14 is needed"),
    ],
)
def test_any_other_is_one_line(version, named, line, tmp_path):
    if version:
        python(tmp_path, "python3", version)
    done = setup("find_python", tmp_path, PYTHON=named)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {line}\n")


def test_a_python_without_venv_and_an_environment_of_another_python_are_one_line_each(tmp_path):
    python(tmp_path, "python3", (3, 13), venv=False)
    done = setup("find_python", tmp_path)
    assert done.stderr == (
        "error: python3 cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv\n"
    )
    python(tmp_path, "python", (3, 9))
    path = f"{tmp_path}:/usr/bin:/bin"  # for dirname
    done = setup("setup_environment", path, VIRTUAL_ENV="/some/venv")
    assert (done.returncode, done.stderr) == (2, "error: /some/venv has Python 3.9.1; Python 3.10 to 3.14 is needed\n")


def test_the_pinned_set_names_the_pythons_of_set_up():
    assert "Python 3.10-3.14" in (ROOT / "requirements.txt").read_text().splitlines()[0]
    assert re.search("Python 3.10.3.14 and nothing", README)


@pytest.mark.parametrize("name", ["new/folder", "tests", "tests/../new", "/tmp"])
def test_paths_are_seen_from_where_the_script_was_called(name, tmp_path):
    given = os.path.normpath(setup(f"absolute {name}", tmp_path, CDPATH=str(ROOT.parent)).stdout.rstrip("\n"))
    assert given == os.path.normpath(ROOT / name)


def test_scripts_use_what_macos_has_too():
    """Its bash is 3.2, its tools are BSD's."""
    for path in (ROOT / "scripts").glob("*.sh"):
        code = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
        found = [line for line in code if re.search(ONLY_GNU, line.split(" # ")[0])]
        assert not found, path

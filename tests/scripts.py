"""Running the scripts as a reader types them, small."""

import shlex
import subprocess
from pathlib import Path

from tests.test_readme import run

FAMILIES = {
    "accuracy_llava": "llava-7B",
    "accuracy_llava_next": "llava-next",
    "accuracy_llava_ov": "llava-ov-0.5B",
    "accuracy_qwen": "qwen-8B",
    "accuracy_qwen_4b": "qwen-4B",
    "accuracy_qwen_video": "qwen-8B-video",
}
TINY = {"TASKS": "mini_scene", "LIMIT": "1", "RETENTION": "0.5", "METHODS": "tgv_kv", "HF_HUB_OFFLINE": "1"}


def script(name: str, *arguments: str, **env: str) -> subprocess.CompletedProcess:
    """One of `scripts`, on one sample of one task with two configurations unless `env` says otherwise."""
    return run(f"bash scripts/{name}.sh {shlex.join(arguments)}", **TINY | env)


def fake(path: Path, body: str) -> None:
    """A program of that name."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)

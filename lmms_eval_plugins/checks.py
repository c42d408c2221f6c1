"""What a run needs beside its settings, looked for before a weight is loaded; all that is missing is said at once."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
from collections.abc import Iterable, Iterator

from packaging.requirements import Requirement
from packaging.version import Version
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from kv_caches import ConfigError
from kv_caches.errors import nearest, one_line
from lmms_eval_plugins import arguments, data_sets, kept, launcher, memory, needs, records
from lmms_eval_plugins.errors import RunStopped
from lmms_eval_plugins.judge.settings import JudgeSettings
from lmms_eval_plugins.settings import RunSettings
from tgv_kv_harness import beside_code

REQUIREMENTS = beside_code("requirements.txt")
_LEAST_FREE = 1 << 30
_NO_TASKS = "--tasks is missing: what is to be scored, such as mini_scene (all: lmms-eval --tasks list)"
_FLASH = {"2": ("flash-attn", is_flash_attn_2_available), "3": ("flash-attn-3", is_flash_attn_3_available)}
_TESTED = ("torch", "transformers", "lmms-eval", "accelerate", "datasets", "qwen-vl-utils")


def problems(args: argparse.Namespace, run: RunSettings | None) -> list[str]:
    """One line for everything that would end the run later.

    Args:
        args: see `preflight.parse`.
        run: None if its settings are wrong already.
    """
    names = [name.strip() for name in (args.tasks or "").split(",") if name.strip()]
    found = [] if names else [_NO_TASKS]
    found += [] if args.include_path not in (None, str(needs.TASKS_DIR)) else unknown(names)
    wanted = needs.of(names)
    found += [
        *arguments.problems(args),
        *launcher.problems(),
        *_imports(wanted),
        *data_sets.problems(wanted),
        *_switches(),
    ]
    if not args.predict_only:
        found += [*_java(wanted), *_judges(wanted)]
    found += _disk()
    if run is not None:
        found += _kernel(run)
    if run is not None and run.device.startswith("cuda"):
        found += _memory(run)
    return [one_line(problem) for problem in found]


def stop_on(found: list[str]) -> None:
    """Ends the run if there are problems.

    Raises:
        RunStopped: with all of them, one a line.
    """
    if found:
        raise RunStopped("\nerror: ".join(found))


def print_notices(run: RunSettings | None = None) -> None:
    """Says which of the packages that can change an answer are not those of the tested set, and if memory is short."""
    if launcher.rank() != 0:
        return
    if other := list(untested()):
        print(f"[kv] not the tested set (requirements.txt): {', '.join(other)}", flush=True)
    for notice in memory.notices(run) if run is not None and run.device.startswith("cuda") else ():
        print(f"[kv] {notice}", flush=True)


def untested() -> Iterator[str]:
    """`name version (tested: version)` of packages whose version is another than in requirements.txt."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines() if REQUIREMENTS.is_file() else []
    for line in lines:
        text = line.split("#")[0].strip()
        if not text.startswith(_TESTED):
            continue
        requirement = Requirement(text)
        if requirement.name not in _TESTED or (requirement.marker and not requirement.marker.evaluate()):
            continue
        version = Version(importlib.metadata.version(requirement.name))
        if not requirement.specifier.contains(version.public, prereleases=True):
            yield f"{requirement.name} {version} (tested: {str(requirement.specifier).removeprefix('==')})"


def unknown(names: Iterable[str]) -> Iterator[str]:
    """A line for every name that no task has."""
    for name in needs.unknown(names):
        yield f"--tasks: there is no task {name}.{nearest(name, needs.task_names())} (all: lmms-eval --tasks list)"


def _switches() -> Iterator[str]:
    try:
        kept.wanted()
    except ConfigError as error:
        yield str(error)


def _imports(wanted: dict[str, needs.Needs]) -> Iterator[str]:
    """Tasks whose code cannot be imported here: lmms-eval comes to that after the model is loaded."""
    tasks: dict[tuple[str, str], list[str]] = {}
    for task, need in wanted.items():
        for missing in need.missing.items():
            tasks.setdefault(missing, []).append(task)
    for (module, reason), names in tasks.items():
        yield f"--tasks {needs.some(names)}: the code imports {module}, which cannot be used here ({reason})"


def _java(wanted: dict[str, needs.Needs]) -> Iterator[str]:
    tasks = [task for task, need in wanted.items() if need.java]
    if tasks and shutil.which("java") is None:
        yield f"--tasks {needs.some(tasks)}: the caption metrics need Java, and there is no java in PATH"


def _judges(wanted: dict[str, needs.Needs]) -> Iterator[str]:
    missing: dict[tuple[str, ...], list[str]] = {}
    for task, need in wanted.items():
        if need.keys and not any(os.environ.get(key) for key in need.keys):
            missing.setdefault(tuple(sorted(need.keys, reverse=True)), []).append(task)
    yield from _own_judge([task for task, need in wanted.items() if need.judged])
    for keys, tasks in missing.items():
        yield (
            f"--tasks {needs.some(tasks)}: answers are judged by another model, and {' or '.join(keys)} is not set "
            "(any value passes this check; --predict_only leaves the scores out)"
        )


def _own_judge(tasks: list[str]) -> Iterator[str]:
    """Answers of these tasks are judged after they are stored; who will do that has to be known."""
    asked = tasks or any(name.startswith("KV_JUDGE") for name in os.environ)
    try:
        judge = JudgeSettings.from_env() if asked else None
    except ConfigError as error:
        yield str(error)
        return
    if tasks and judge is not None and judge.missing:
        yield (
            f"--tasks {needs.some(tasks)}: answers are judged by another model, which needs "
            f"{' and '.join(judge.missing)}; OPENAI_API_URL may name a server of your own, which needs no key; "
            "KV_JUDGE=exact judges offline (not comparable to the paper), KV_JUDGE=none leaves it for later "
            "(python -m lmms_eval_plugins.judge)"
        )


def _disk() -> Iterator[str]:
    folder = records.base_dir().absolute()
    existing = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    if not os.path.isdir(existing):
        yield f"{folder}: records go there, and {existing} is a file; name a folder in KV_RECORDS_DIR"
    free = shutil.disk_usage(existing).free
    if free < _LEAST_FREE:
        yield f"{folder}: {free / 2**20:.0f} MiB are free on its disk; records and results need 1 GiB"


def _kernel(run: RunSettings) -> Iterator[str]:
    """An attention kernel that could not be loaded beside the weights, or would fail at every sample."""
    version = (run.attn_implementation or "").removeprefix("flash_attention_")
    if version not in _FLASH:
        return
    asked, instead = f"attn_implementation={run.attn_implementation} in --model_args", "attn_implementation=sdpa"
    package, available = _FLASH[version]
    if run.device == "cpu":
        yield f"{asked}: flash attention needs a GPU, and this run is on the CPU; use {instead}"
    elif not available(kernels_fallback_ok=True):  # as transformers: the package, or the kernel from the hub
        yield f"{asked}: {package} is not installed, or does not work here; install it, or use {instead}"
    elif run.dtype == "float32":
        yield f"{asked}: flash attention has no dtype=float32; use dtype=bfloat16, or {instead}"


def _memory(run: RunSettings) -> Iterator[str]:
    """Each process looks at its own GPU; what only a later one sees, it has to say itself."""
    for problem in memory.problems(run):
        if launcher.rank():
            raise RunStopped(problem, process=True)
        yield problem

"""Whether data sets can be read: the loader that lmms-eval uses is asked, with lmms-eval's arguments and folder.

lmms-eval loads weights first and data sets afterwards, tries each five times, and says `RetryError` at the end.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import huggingface_hub
import yaml
from loguru import logger

from lmms_eval_plugins import launcher
from lmms_eval_plugins.data_cache import builder_of_snapshot, elsewhere, folder, prepared, snapshot
from lmms_eval_plugins.errors import RunStopped, in_one_line
from lmms_eval_plugins.needs import Needs, some

_COMMAND = "python -m lmms_eval_plugins.fetch"
_OF_LMMS_EVAL = {"video", "force_download", "force_unzip", "local_files_only", "create_link", "trust_remote_code"}
_LOADED_OTHERWISE = ("From_YouTube", "builder_script")


def problems(wanted: dict[str, Needs]) -> Iterator[str]:
    """One line for every data set that cannot be read; one process of each machine asks.

    Args:
        wanted: needs by task.
    """
    if launcher.rank(name="LOCAL_RANK"):
        return
    tasks: dict[str, list[str]] = {}
    for task, need in wanted.items():
        tasks.setdefault(repr((need.dataset, need.configuration, need.split, need.arguments)), []).append(task)
    for names in tasks.values():
        with _quiet():
            problem = _problem(wanted[names[0]], names)
        if problem is None:
            continue
        line = f"--tasks {some(names)}: {problem}"
        if launcher.rank():
            raise RunStopped(line, process=True)
        yield line


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the notes of `datasets` and lmms-eval on what they found; a run prints them again."""
    from datasets.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    logger.disable("lmms_eval")
    try:
        yield
    finally:
        logging.set_verbosity(before)
        logger.enable("lmms_eval")


def _problem(need: Needs, tasks: list[str]) -> str | None:
    import datasets

    if need.arguments.get("load_from_disk"):
        return _problem_on_disk(_path(need.dataset))
    values = (need.dataset, *need.arguments.values())
    if need.dataset is None or any(isinstance(value, yaml.Node) for value in values):
        return None
    if any(name in need.arguments for name in _LOADED_OTHERWISE):
        return None  # computed by the task, or loaded in a way of its own
    try:
        builder = _builder(need)
    except Exception as error:  # whatever a loader raises ends the run later
        return _why(need, tasks, error)
    if Path(builder.cache_dir).is_dir():
        try:
            found = builder.as_dataset()
        except Exception as error:
            return _damaged(need, Path(builder.cache_dir), tasks, error)
        if need.split and need.split not in found:
            return f"the data set {need.dataset} has no split {need.split}; it has {', '.join(map(str, found))}"
    if need.arguments.get("video") and datasets.config.HF_HUB_OFFLINE:
        return _without_videos(need, tasks)
    return None


def _builder(need: Needs) -> Any:
    import datasets

    load, build = (set(signature(one).parameters) for one in (datasets.load_dataset, datasets.load_dataset_builder))
    left_out = _OF_LMMS_EVAL | (load - build)
    arguments = {name: value for name, value in need.arguments.items() if name not in left_out}
    own = None if need.arguments.get("video") else arguments.get("cache_dir")
    arguments["cache_dir"] = own or str(folder())
    return datasets.load_dataset_builder(need.dataset, need.configuration, **arguments)


def _path(dataset: Any) -> Any:
    """A folder, or what one of our own modules names as such (which makes it)."""
    value = getattr(dataset, "value", dataset)
    module, _, name = str(value).rpartition(".")
    return getattr(importlib.import_module(module), name) if module.startswith("lmms_eval_plugins.tasks.") else value


def _problem_on_disk(path: Any) -> str | None:
    import datasets

    if not isinstance(path, str):
        return None
    try:
        datasets.load_from_disk(path)
    except Exception as error:
        return (
            f"the data set in {path} cannot be read ({in_one_line(error)}); an embedded one is made again by the next "
            f"run after: rm -r {path}"
        )
    return None


def _why(need: Needs, tasks: list[str], error: Exception) -> str:
    """What a loader's exception means, and the command that mends it."""
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub.errors import LocalTokenNotFoundError

    if isinstance(error, LocalTokenNotFoundError):
        return (
            f"the data set {need.dataset} is read with a token of the Hugging Face hub, and there is none: run "
            "hf auth login once, or set HF_TOKEN (https://huggingface.co/settings/tokens)"
        )
    if isinstance(error, DatasetNotFoundError):
        return (
            f"the hub does not show the data set {need.dataset} to you ({in_one_line(error)}); hf auth whoami says who "
            f"you are, https://huggingface.co/datasets/{need.dataset} whether access has to be asked for"
        )
    there = prepared(need, folder())
    others = sorted({path.parts[-3] for path in there})
    if there and type(error) is ValueError and need.configuration not in others:
        return (
            f"of the data set {need.dataset}, {folder()} has {', '.join(others)} and not {need.configuration}; "
            + _fetch(tasks)
        )
    if there:
        return _damaged(need, there[-1], tasks, error)
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        return _not_there(need, tasks)
    return f"the data set {need.dataset} cannot be read: {in_one_line(error)}"


def _not_there(need: Needs, tasks: list[str]) -> str:
    other, start = elsewhere(), f"the data set {need.dataset}"
    if other is not None and prepared(need, other):
        return (
            f"{start} is prepared in {other}, but lmms-eval reads {folder()} here"
            + ("" if os.environ.get("LMMS_EVAL_DATASETS_CACHE") else " (it avoids network file systems)")
            + f"; to read it where it is: export LMMS_EVAL_DATASETS_CACHE={other}"
        )
    if builder_of_snapshot(need) is not None:
        return (
            f"{start} lies in the hub's cache as it was downloaded, and without network only what is prepared in "
            f"{folder()} is read; this prepares it, without network: {_COMMAND} {','.join(tasks)}"
        )
    return f"{start} is not in {folder()}, and {_offline()} forbids to download it; {_fetch(tasks)}"


def _without_videos(need: Needs, tasks: list[str]) -> str | None:
    """lmms-eval unpacks videos once, from the hub's cache."""
    from lmms_eval.utils import resolve_cache_dir

    home = os.path.expanduser(os.getenv("HF_HOME", "~/.cache/huggingface/"))
    unpacked = resolve_cache_dir(need.arguments["cache_dir"], base_dir=home)
    if Path(unpacked).exists() or snapshot(need) is not None:
        return None
    return (
        f"the videos of {need.dataset} are neither in {unpacked} nor in the hub's cache, and {_offline()} forbids to "
        f"download them; {_fetch(tasks)}"
    )


def _damaged(need: Needs, path: Path, tasks: list[str], error: Exception) -> str:
    return f"the data set {need.dataset} is damaged ({in_one_line(error)}): rm -r {path}, then {_fetch(tasks)}"


def _offline() -> str:
    """The scripts say why they set it by themselves."""
    because = os.environ.get("OFFLINE_BECAUSE")
    return "HF_HUB_OFFLINE=1" + (f" (the script set it: {because}; HF_HUB_OFFLINE=0 undoes it)" if because else "")


def _fetch(tasks: list[str]) -> str:
    online = "HF_HUB_OFFLINE=0 " if huggingface_hub.constants.HF_HUB_OFFLINE else ""
    return f"with network: {online}{_COMMAND} {','.join(tasks)}"

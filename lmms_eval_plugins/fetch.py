"""Fetch and prepare the data sets of tasks, exactly as a run reads them; then runs need no network for their data.

Data sets that were only downloaded (`hf download --repo-type dataset`) are prepared from there, without network, if
HF_HUB_OFFLINE=1. Prints per data set how many samples there are, and the folder.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub

from lmms_eval_plugins import checks, data_cache, data_sets, needs
from lmms_eval_plugins.errors import RunStopped, in_one_line


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m lmms_eval_plugins.fetch", description=__doc__)
    parser.add_argument("tasks", help="names of lmms-eval tasks or groups, separated by commas")
    names = [name.strip() for name in parser.parse_args(argv).tasks.split(",") if name.strip()]
    checks.stop_on(list(checks.unknown(names)))
    for task, need in needs.of(names).items():
        if not isinstance(need.dataset, str) or need.arguments.get("load_from_disk"):
            print(f"{task}: nothing to fetch", flush=True)
            continue
        try:
            found = _prepared_without_network(need) or _fetched(task, need)
        except Exception as error:
            problem = next(data_sets.problems({task: need}), None)
            raise RunStopped(problem or f"{task}: {need.dataset} cannot be fetched: {in_one_line(error)}") from error
        print(f"{task}: {len(found[need.split])} samples of {need.dataset} in {data_cache.folder()}", flush=True)
    other = data_cache.elsewhere()
    if other is not None and not os.environ.get("LMMS_EVAL_DATASETS_CACHE"):
        print(
            f"note: only this machine sees {data_cache.folder()}; for data that others see too: "
            f"export LMMS_EVAL_DATASETS_CACHE={other}, here and there, and fetch again"
        )
    return 0


def _fetched(task: str, need: needs.Needs) -> Any:
    """By the function that lmms-eval loads it with, without its repeated attempts."""
    from lmms_eval.api.task import ConfigurableTask

    config = SimpleNamespace(task=task, test_split=need.split, process_docs=None, process_results_use_image=True)
    loader = SimpleNamespace(DATASET_PATH=need.dataset, DATASET_NAME=need.configuration, config=config)
    ConfigurableTask.download.__wrapped__(loader, dict(need.arguments) or None)
    return loader.dataset


def _prepared_without_network(need: needs.Needs) -> Any:
    """From the hub's cache, where `datasets` will look for it; None if there is no need or nothing to do it from.

    Raises:
        RunStopped: nothing tells that its files are all there, or they are not.
    """
    from datasets.naming import camelcase_to_snakecase

    if not huggingface_hub.constants.HF_HUB_OFFLINE or data_cache.prepared(need, data_cache.folder()):
        return None
    builder = data_cache.builder_of_snapshot(need)
    if builder is None:
        return None
    owner, name = need.dataset.split("/")
    builder.dataset_name, source = camelcase_to_snakecase(name), Path(builder.base_path)
    target = data_cache.folder() / f"{owner}___{builder.dataset_name}" / builder.config.name / "0.0.0" / source.name
    try:
        if not builder.info.splits:
            raise ValueError("its README.md does not say how many samples it has")
        builder.download_and_prepare(str(target))  # compares these numbers
    except Exception as error:
        raise RunStopped(f"{need.dataset} cannot be prepared from {source}: {in_one_line(error)}") from error
    return builder.as_dataset()


if __name__ == "__main__":
    sys.exit(main())

"""Where prepared data sets and downloaded files lie, for lmms-eval and for `datasets`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub

from lmms_eval_plugins.needs import Needs


def folder() -> Path:
    """Where lmms-eval keeps prepared data sets: `LMMS_EVAL_DATASETS_CACHE`, or `HF_DATASETS_CACHE`.

    If the latter is on a network file system: a folder on the machine's own disk.
    """
    from lmms_eval.api.task import _resolve_hf_datasets_cache_dir

    return Path(_resolve_hf_datasets_cache_dir())


def elsewhere() -> Path | None:
    """The folder where `datasets` itself prepares data sets, if lmms-eval does not look there."""
    import datasets

    own = Path(datasets.config.HF_DATASETS_CACHE).expanduser()
    return None if own.resolve() == folder().resolve() else own


def prepared(need: Needs, root: Path) -> list[Path]:
    """What `datasets` has prepared of a hub data set below a folder; empty for others."""
    from datasets.naming import camelcase_to_snakecase

    owner, _, name = str(need.dataset).partition("/")
    return sorted(root.glob(f"{owner}___{camelcase_to_snakecase(name)}/*/*/*/")) if name else []


def snapshot(need: Needs) -> Path | None:
    """The files of a hub data set in the hub's cache."""
    try:
        return Path(huggingface_hub.snapshot_download(need.dataset, repo_type="dataset", local_files_only=True))
    except (OSError, ValueError):
        return None


def builder_of_snapshot(need: Needs) -> Any:
    """Makes the data set from those files; None if its data is not among them."""
    import datasets

    found = snapshot(need)
    try:
        return datasets.load_dataset_builder(str(found), need.configuration) if found else None
    except (OSError, ValueError, datasets.exceptions.DatasetsError):
        return None

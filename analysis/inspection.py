"""Files of `python -m kv_caches.inspect`, read without torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from .errors import ResultsError
from .names import configuration_name

SCHEMAS = (1,)
ARRAYS = ("map", "received", "from_text", "blocks", "cosines", "similarity", "is_vision", "bins", "shown", "coverage")


@dataclass(frozen=True)
class Inspected:
    """One prompt: arrays by name (see `kv_caches.inspect`) and what else is known of it."""

    path: Path
    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Inspected:
        """A file.

        Raises:
            ResultsError: it is none, or of an unknown version.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            meta = json.loads(str(arrays.pop("meta")))
            if meta["schema"] in SCHEMAS:
                _check(arrays, meta)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, BadZipFile, EOFError) as error:
            raise ResultsError(f"{path}: not a file of python -m kv_caches.inspect ({error})") from error
        if meta.get("schema") not in SCHEMAS:
            raise ResultsError(f"{path}: version {meta.get('schema')!r} of an inspection is unknown")
        return cls(path, arrays, meta)

    @property
    def layers(self) -> int:
        """L."""
        return len(self.arrays["map"])

    @cached_property
    def is_vision(self) -> np.ndarray:
        """(N,) bool."""
        return self.arrays["is_vision"].astype(bool)

    @cached_property
    def dominance(self) -> np.ndarray:
        """(L, N) mean attention a text position gets from the text rows that see it; 0 for vision."""
        text = ~self.is_vision
        seen_by = np.cumsum(text[::-1])[::-1]
        return np.where(text, self.arrays["from_text"] / np.maximum(seen_by, 1), 0)

    def token(self, position: int) -> str:
        """A text token as a label."""
        text = self.meta["tokens"][position].replace("\n", "↵").strip() or "␣"
        return "".join(letter if letter.isprintable() else "?" for letter in text)[:12]

    def evicted_first(self, layer: int) -> np.ndarray:
        """Positions in the order in which a method that ranks by accumulated attention would evict them."""
        return np.argsort(self.arrays["received"][layer], kind="stable")


def _check(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    """Every array is there, they fit each other, and there is attention in them.

    Raises:
        LookupError, TypeError, ValueError: what is not as it should be.
    """
    layers, length = arrays["received"].shape
    for name in ARRAYS:
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"{name} has values that are no numbers")
    for name in ("map", "from_text", "blocks", "cosines", "similarity"):
        if not layers or len(arrays[name]) != layers:
            raise ValueError(f"{name} and received are of {len(arrays[name])} and {layers} layers")
    if not length == len(arrays["is_vision"]) == len(arrays["bins"]) == len(meta["tokens"]):
        raise ValueError("its arrays and tokens are of prompts of several lengths")
    if not (arrays["map"].max((1, 2)) > 0).all() or not (arrays["received"].max(1) > 0).all():
        raise ValueError("a layer without attention")
    for config in meta["configs"]:
        configuration_name(config["method"], config["variant"], "append")
        float(config["retention"])


def files(paths: Iterable[Path]) -> list[Inspected]:
    """Files, and all files of folders.

    Raises:
        ResultsError: none, or one that cannot be read.
    """
    found = [path for given in paths for path in (sorted(given.glob("*.npz")) if given.is_dir() else [given])]
    if not found:
        raise ResultsError(f"{next(iter(paths))}: no .npz file in here; python -m kv_caches.inspect makes some")
    return [Inspected.read(path) for path in found]


def coverages(inspected: Iterable[Inspected]) -> pd.DataFrame:
    """A row per prompt, configuration and layer: prompt, name, retention, layer, coverage."""
    rows = []
    for one in inspected:
        for config, layers in zip(one.meta["configs"], one.arrays["coverage"]):
            name = configuration_name(config["method"], config["variant"], "append")
            known = {"prompt": one.path.name, "name": name, "retention": config["retention"]}
            rows += [{**known, "layer": i, "coverage": float(value)} for i, value in enumerate(layers)]
    if not rows:
        raise ResultsError("no prompt was answered with more than one token, so there is no attention to cover")
    return pd.DataFrame(rows)

"""What was kept of one prompt: from records and prompts that were written with KV_RECORD_KEPT=1."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from .errors import ResultsError
from .names import configuration_name
from .records import records_of
from .runs import Results

SCHEMAS = (1,)


@dataclass(frozen=True)
class Prompt:
    """Tokens of a prompt (None for vision) and the pictures behind its vision tokens."""

    folder: Path
    tokens: list[str | None]
    blocks: list[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Prompt:
        """From <records>/prompts/<name>.json.

        Raises:
            ResultsError: it is not there, or of an unknown version.
        """
        if not path.is_file():
            raise ResultsError(f"{path}: the prompt behind a record is missing; run again with KV_RECORD_KEPT=1")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["schema"] not in SCHEMAS:
                raise ResultsError(f"{path}: version {content['schema']!r} of a prompt is unknown")
            return cls(path.parent, content["tokens"], content["blocks"])
        except (json.JSONDecodeError, UnicodeDecodeError, LookupError, TypeError) as error:
            raise ResultsError(f"{path}: {error} is missing or not as expected; remove it and run again") from error

    def picture(self, block: dict[str, Any]) -> np.ndarray:
        """(H, W, 3) bytes.

        Raises:
            ResultsError: its file is gone or damaged.
        """
        path = self.folder / block["file"]
        try:
            return np.asarray(Image.open(path).convert("RGB"))
        except OSError as error:
            raise ResultsError(f"{path}: the picture of a prompt cannot be read: {error}") from error


@dataclass(frozen=True)
class Sample:
    """One prompt under one configuration.

    Attributes:
        kept: (layers, N) share of the layer's sets (KV heads) that keep each position.
    """

    model: str
    name: str
    retention: float
    task: str
    doc_id: Any
    answer: str
    record: dict[str, Any]
    path: Path

    @property
    def label(self) -> str:
        """Configuration and budget."""
        return self.name if self.name == "full" else f"{self.name}, {100 * self.retention:.3g} %"

    @cached_property
    def kept(self) -> np.ndarray:
        try:
            return unpacked(self.record["kept"]).mean(1)
        except (ValueError, LookupError, TypeError, zlib.error) as error:
            where = f"{self.path}: sample {self.doc_id} of {self.task}"
            raise ResultsError(f"{where}: what was kept is not readable ({error}); run again") from error

    @cached_property
    def prompt(self) -> Prompt:
        """What the model saw."""
        return Prompt.read(self.path.parent / "prompts" / f"{self.record['prompt']}.json")

    def grid(self, block: dict[str, Any], layer: int) -> np.ndarray:
        """(rows, columns) share of sets that keep each token of a picture; newline tokens are left out."""
        stride = block["columns"] + block["newline"]
        flat = self.kept[layer, block["start"] : block["start"] + block["rows"] * stride]
        return flat.reshape(block["rows"], stride)[:, : block["columns"]]

    def on_text(self) -> np.ndarray:
        """(N,) share of layers and sets that keep each position."""
        return self.kept.mean(0)


def unpacked(kept: dict[str, Any]) -> np.ndarray:
    """(layers, sets, N) bool of a record's ``kept``."""
    bits = np.unpackbits(np.frombuffer(zlib.decompress(base64.b64decode(kept["bits"])), np.uint8))
    return bits[: int(np.prod(kept["shape"]))].reshape(kept["shape"]).astype(bool)


def samples(results: Results, tasks: Iterable[str] = (), docs: Iterable[str] = ()) -> Iterator[Sample]:
    """All samples whose records say what was kept; of some tasks and documents only, if they are named."""
    tasks, docs = set(tasks), set(docs)
    runs = results.scores.drop_duplicates(["run", "fingerprint"])
    for run in runs.to_dict("records"):
        folder = Path(run["records"])
        if not run["records"] or not (folder.parent / "prompts").is_dir():
            continue
        for record in records_of(folder).to_dict("records"):
            proof = record["eviction"]
            wanted = (not tasks or record["task"] in tasks) and (not docs or str(record["doc_id"]) in docs)
            if (
                wanted
                and record["status"] == "ok"
                and isinstance(proof, dict)
                and "kept" in proof
                and "prompt" in proof
            ):
                name = configuration_name(run["method"], run["variant"], run["decode"])
                where = (run["model"], name, run["retention"], record["task"], record["doc_id"])
                yield Sample(*where, record["answer"], proof, folder)

"""Checkpoints are made once; every test has an environment of its own, without eviction."""

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lmms_eval_plugins.asked import VARIABLES

from . import checkpoints

_ROOT = Path(__file__).parents[2]
_ENTRY_POINT = "[lmms_eval.models]\ntgv_kv = lmms_eval_plugins.manifest:model_manifests\n"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the test's records."""
    for name in list(os.environ):
        if name.startswith(VARIABLES):
            monkeypatch.delenv(name)
    folder = tmp_path / "records"
    monkeypatch.setenv("KV_RECORDS_DIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """What a command line sets for its whole process ends with the test."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    streams = sys.stdout, sys.stderr
    yield
    sys.stdout, sys.stderr = streams
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory):
    """Makes the checkpoint of a model type, once."""
    made: dict[str, Path] = {}

    def make(model_type: str) -> Path:
        if model_type not in made:
            made[model_type] = checkpoints.BUILD[model_type](tmp_path_factory.mktemp(model_type))
        return made[model_type]

    return make


@dataclass(frozen=True)
class Site:
    """A folder with the package's entry point, as an installation leaves it, and the environment that sees it."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "ACCELERATE_USE_CPU")}
        path = os.pathsep.join([str(_ROOT), str(self.folder)])
        return kept | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    info = folder / "harness_under_test-0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: harness-under-test\nVersion: 0.0\n")
    (info / "entry_points.txt").write_text(_ENTRY_POINT)
    return Site(folder)


@pytest.fixture
def tgv(monkeypatch: pytest.MonkeyPatch) -> None:
    """TGV-KV at 30 %."""
    monkeypatch.setenv("KV_CACHE_TYPE", "tgv_kv")
    monkeypatch.setenv("KV_RETENTION", "0.3")

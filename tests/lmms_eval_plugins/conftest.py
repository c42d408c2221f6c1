"""Checkpoints are made once; every test has an environment of its own, without eviction."""

import os
from pathlib import Path

import pytest

from . import checkpoints

_OURS = ("KV_", "PRUNE_RATIO", "MODEL_TYPE", "MAX_GENERATED_TOKENS", "IMAGE_MAX_TOKEN_NUM", "VISION_ASPECT_RATIO")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the test's records."""
    for name in list(os.environ):
        if name.startswith(_OURS):
            monkeypatch.delenv(name)
    folder = tmp_path / "records"
    monkeypatch.setenv("KV_RECORDS_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory):
    """Makes the checkpoint of a model type, once."""
    made: dict[str, Path] = {}

    def make(model_type: str) -> Path:
        if model_type not in made:
            made[model_type] = checkpoints.BUILD[model_type](tmp_path_factory.mktemp(model_type))
        return made[model_type]

    return make


@pytest.fixture
def tgv(monkeypatch: pytest.MonkeyPatch) -> None:
    """TGV-KV at 30 %."""
    monkeypatch.setenv("KV_CACHE_TYPE", "tgv_kv")
    monkeypatch.setenv("KV_RETENTION", "0.3")

"""MODEL_TYPE rows (configs/models/*.yaml) and the check that a row fits the loaded model."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from tgv_kv_harness import beside_code

from .errors import ConfigError, nearest

FOLDER = beside_code("configs/models")


@cache
def model_rows() -> dict[str, dict[str, Any]]:
    """Every row: name -> {checkpoint, wrapper, model_type, hidden_size, layers} and, for some, model_args."""
    rows: dict[str, dict[str, Any]] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        rows |= yaml.safe_load(path.read_text())
    if not rows:
        raise ConfigError(f"no model rows in {FOLDER}: the installation is not whole; install it again")
    return rows


def model_row(model_type: str) -> dict[str, Any]:
    """The row of one MODEL_TYPE.

    Raises:
        ConfigError: no such row, with the nearest match.
    """
    rows = model_rows()
    if model_type not in rows:
        raise ConfigError(
            f"MODEL_TYPE={model_type!r} is not a row of configs/models; allowed: {', '.join(sorted(rows))}."
            f"{nearest(model_type, rows)}"
        )
    return rows[model_type]


def check_model_type(model_type: str | None, config: Any) -> None:
    """Compare a row with a model's config (a transformers PreTrainedConfig).

    Raises:
        ConfigError: the row describes another model.
    """
    if model_type is None:
        return
    row, loaded = model_row(model_type), _sizes(config)
    wrong = [f"{key} {loaded[key]} (expected {row[key]})" for key in loaded if row[key] != loaded[key]]
    if wrong:
        fitting = fitting_rows(config)
        advice = f"use {' or '.join(fitting)}" if fitting else "unset it"
        raise ConfigError(f"MODEL_TYPE={model_type!r} contradicts the loaded model: {', '.join(wrong)}; {advice}")


def fitting_rows(config: Any) -> list[str]:
    """Names of the rows that describe a model's config (a transformers PreTrainedConfig), in the order of the files."""
    loaded = _sizes(config)
    return [name for name, row in model_rows().items() if all(row[key] == value for key, value in loaded.items())]


def _sizes(config: Any) -> dict[str, Any]:
    text = config.get_text_config(decoder=True)
    return {
        "model_type": config.model_type,
        "hidden_size": getattr(text, "hidden_size", None),
        "layers": getattr(text, "num_hidden_layers", None),
    }

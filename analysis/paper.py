"""The paper's numbers, as far as the sources state them: results/paper/*.csv, see the README there."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from tgv_kv_harness import beside_code

FOLDER = beside_code("results/paper")
COLUMNS = [
    "table",
    "model",
    "task",
    "method",
    "variant",
    "retention",
    "metric",
    "relation",
    "value",
    "unit",
    "status",
    "wording",
    "source",
]
STATUSES = ("reported", "relative to full", "read from text")
RELATIONS = ("=", "<", "<=", ">", ">=")


@cache
def paper_numbers(folder: Path = FOLDER) -> pd.DataFrame:
    """One row per number; what the sources do not state is "" (NaN for ``retention``)."""
    texts = {name: str for name in COLUMNS if name not in ("retention", "value")}
    parts = [pd.read_csv(path, dtype=texts, keep_default_na=False) for path in sorted(folder.glob("*.csv"))]
    table = pd.concat(parts, ignore_index=True)[COLUMNS]
    return table.assign(**{name: pd.to_numeric(table[name]) for name in ("retention", "value")})


def names(table: pd.DataFrame) -> pd.Series:
    """Configurations as `analysis` names them: `ablation (uniform-self)`; "" where the sources do not say which."""
    return table["method"].where(table["variant"] == "", table["method"] + " (" + table["variant"] + ")")


def in_words(row: pd.Series) -> str:
    """A number as the paper gives it: `14.3`, `99.2 % of full`, `drop < 0.5 %`."""
    if row["metric"] == "share of full":
        relation = "" if row["relation"] == "=" else f"{row['relation']} "
        return f"{relation}{row['value']:g} % of full"
    if row["status"] == "reported":
        return f"{row['value']:.1f}"
    return f"{row['metric']} {row['relation']} {row['value']:g} {row['unit']}"

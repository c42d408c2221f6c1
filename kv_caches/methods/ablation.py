"""Table 1 of the TGV-KV paper: layer budget x importance x retention, every row a composition of existing parts.

Liu et al., "TGV-KV", ICML 2026. The rows are data, configs/ablations/table1.yaml; add one there and it is a variant.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import yaml
from torch import Tensor

from tgv_kv_harness import beside_code

from ..budgets import Budget, Uniform, total_budget, water_fill
from ..errors import ConfigError, nearest
from ..method import Method, Scorer
from ..retention import Protected, Retention
from ..scorers import WINDOW, HeadMean, Random, WindowVotes
from ..statistics import ColumnSums, LastRow, PrefillStats, Received, Statistic, TextGrounding
from .tgv_kv import TextWeightedRanking

FILE = beside_code("configs/ablations/table1.yaml")
READS = (FILE,)
TEXT, VISION = Received("text"), Received("vision")


@dataclass(frozen=True)
class BlockMass:
    """A layer's share is its attention mass in one block of the map: rows of ``rows``, columns of ``columns``."""

    rows: Received
    columns: str

    def allocate(self, stats: PrefillStats, retention: float) -> list[int]:
        index = stats.prompt.vision if self.columns == "vision" else stats.prompt.text
        received = [stats.get(self.rows, layer) for layer in range(stats.n_layers)]
        mass = [float(r[index.to(r.device)].detach().double().sum()) for r in received]
        return water_fill(mass, total_budget(stats, retention), stats.prompt.length)


@dataclass(frozen=True)
class BlockSums:
    """Vision ranked by the attention it gets from ``vision_by`` rows, text by what it gets from text rows."""

    vision_by: Received

    def score(self, stats: PrefillStats, layer: int, budget: int) -> Tensor:
        text = stats.get(TEXT, layer)
        is_vision = stats.prompt.is_vision.to(text.device)
        return torch.where(is_vision, stats.get(self.vision_by, layer), text)[None]


BUDGETS: dict[str, tuple[Budget, set[Statistic]]] = {
    "uniform": (Uniform(), set()),
    "vv": (BlockMass(VISION, "vision"), {VISION}),
    "tv": (BlockMass(TEXT, "vision"), {TEXT}),
    "tt": (BlockMass(TEXT, "text"), {TEXT}),
}
IMPORTANCE: dict[str, tuple[Scorer, set[Statistic]]] = {
    "window": (WindowVotes(), {WINDOW}),
    "self": (HeadMean(ColumnSums()), {ColumnSums()}),
    "vv_tt": (BlockSums(VISION), {VISION, TEXT}),
    "tv_tt": (BlockSums(TEXT), {TEXT}),
    "twr": (TextWeightedRanking(), {TextGrounding(), LastRow()}),
    "random": (Random(), set()),
}
RETENTION: dict[str, Retention] = {
    "as_scored": Protected(),
    "text_first": Protected(text_first=True),
    "vision_first": Protected(vision_first=True),
}


def part(row: str, kind: str, value: Any, allowed: dict[str, Any]) -> Any:
    """The part a row names.

    Raises:
        ConfigError: there is no such part, with the nearest match.
    """
    if value not in allowed:
        hint = nearest(str(value), allowed)
        raise ConfigError(f"{FILE.name}: row {row}: {kind}: {value!r} is not one of {', '.join(allowed)}.{hint}")
    return allowed[value]


@cache
def rows() -> dict[str, dict[str, str]]:
    """Row name -> budget, importance, retention."""
    return yaml.safe_load(FILE.read_text())


def build(variant: str) -> Method:
    """One row of the table."""
    row = rows()[variant]
    budget, budget_needs = part(variant, "budget", row.get("budget"), BUDGETS)
    scorer, scorer_needs = part(variant, "importance", row.get("importance"), IMPORTANCE)
    keep = part(variant, "retention", row.get("retention"), RETENTION)
    needs = frozenset(budget_needs | scorer_needs)
    return Method("ablation", "Liu et al., ICML 2026, Table 1", budget, scorer, keep, variant, needs)


VARIANTS = tuple(rows())

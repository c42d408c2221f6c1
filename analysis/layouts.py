"""Which rows and columns the tables have: the paper's layout, filled with what the results hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pandas as pd

from .names import base_model, task_name
from .paper import names, paper_numbers
from .writing import file_name

VISION = ("chartqa", "docvqa_val", "vizwiz_vqa_val", "textvqa_val")
LITE = ("chartqa_lite", "docvqa_val_lite", "textvqa_val_lite")
CAPTION = ("textcaps_val", "coco2017_cap_val")
VIDEO = (
    "videott_no_leading_oe",
    "videott_paraphrase_oe",
    "videott_wrong_leading_oe",
    "videott_correct_leading_oe",
)
PRUNING = ("fastv", "visionzip")
COMPONENTS = {
    (False, False, False): "ablation (uniform-tv_tt)",
    (True, False, False): "ablation (tv-tv_tt)",
    (False, True, False): "ablation (uniform-twr)",
    (False, False, True): "ablation (uniform-tv_tt-text_first)",
    (True, True, False): "ablation (tv-twr)",
    (True, False, True): "ablation (tv-tv_tt-text_first)",
    (False, True, True): "ablation (uniform-twr-text_first)",
    (True, True, True): "tgv_kv",
}
_PARTS = {"window": "observation window", "self": "self-attention", "twr": "TWR"}


@dataclass(frozen=True)
class Row:
    """A configuration (``name`` at ``retention``) and what stands before its scores."""

    name: str
    retention: float
    lead: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """A table of scores, for one model."""

    number: str
    title: str
    model: str
    heads: tuple[str, ...]
    rows: list[Row]
    tasks: list[str]
    notes: list[str] = field(default_factory=list)

    @property
    def slug(self) -> str:
        """For file names: `table2-llava-7B`."""
        model = file_name(self.model)
        return f"table{self.number}-{model}" if self.number[0].isdigit() else f"{self.number}-{model}"


def layouts(grid: pd.DataFrame) -> Iterator[Layout]:
    """All score tables of what was tried (`Results.grid`), those without a score among them."""
    for model, mine in grid.groupby("model", sort=True):
        tasks = list(dict.fromkeys(mine["task"]))
        vision = _of(tasks, VISION, LITE, ("mini_document", "mini_chart", "mini_scene"))
        caption, video = _of(tasks, CAPTION, ("coco2014_cap_val",), ("mini_caption",)), _video(tasks)
        others = [task for task in tasks if task not in {*vision, *caption, *video}]
        methods = [name for name in _names(mine) if not name.startswith(("ablation", *PRUNING))]
        yield _ablations(str(model), mine, _of(tasks, ("chartqa",), LITE, ("mini_chart", "mini_scene")))
        for number, title, columns in (
            ("2", "vision-dominant tasks", vision),
            ("3", "captions", caption),
            ("video", "video", video),
            ("other", "other tasks", others),
        ):
            if columns:
                rows = list(_by_budget(mine, methods))
                yield Layout(number, title, str(model), ("budget", "method"), rows, columns)
        yield _components(str(model), mine, vision + caption + video)
        yield _pruning(str(model), mine, vision + caption)


def _of(tasks: list[str], *groups: tuple[str, ...]) -> list[str]:
    """Every group the results have a task of; whole for the first, whose gaps are worth showing."""
    there = [group for group in groups if set(group) & set(tasks)]
    return [task for group in there for task in group if group is groups[0] or task in tasks]


def _video(tasks: list[str]) -> list[str]:
    known = _of(tasks, VIDEO)
    return known + [task for task in tasks if task.startswith(("videott", "mini_video")) and task not in known]


def _names(scores: pd.DataFrame) -> list[str]:
    found = list(dict.fromkeys(scores["name"]))
    first = [name for name in ("full", "tgv_kv") if name in found]
    return first + [name for name in found if name not in first]


def _by_budget(
    scores: pd.DataFrame, names: list[str], lead: Callable[[str], tuple[str, ...]] = lambda name: (name,)
) -> Iterator[Row]:
    """The full cache, then every budget with every configuration, whether it ran or not."""
    if "full" in names:
        yield Row("full", 1.0, ("100 %", *lead("full")))
    for retention in sorted(set(scores["retention"][scores["method"] != "full"]), reverse=True):
        there = set(scores["name"][scores["retention"] == retention])
        for name in names:
            if name != "full" and (retention < 1 or name in there):
                yield Row(name, retention, (f"{100 * retention:.3g} %", *lead(name)))


def _ablations(model: str, grid: pd.DataFrame, tasks: list[str]) -> Layout:
    """What was run of Table 1, and the paper's rows for this model."""
    paper = _paper_ablations(model).query("method not in ('', 'full')")
    random = {name: f"{name} (plain)" for name in ("random_text_first", "random_vision_first")}
    known = pd.DataFrame({"method": paper["method"], "retention": paper["retention"], "name": names(paper)})
    mine = grid[grid["name"].str.startswith(("ablation", "random_"))]
    both = pd.concat([mine, known.replace({"name": random})], ignore_index=True)
    there = [*(["full"] if "full" in set(grid["name"]) else []), *_names(both)]
    notes = [f"Of unknown setting in the sources: {', '.join(_unknown(model))}."] if _unknown(model) else []
    heads = ("budget", "layer budget", "importance", "evicted first")
    tasks = tasks or list(dict.fromkeys(grid["task"]))
    rows = list(_by_budget(both, there, _ablation_parts)) if len(both) else []
    return Layout("1", "ablations", model, heads, rows, tasks, notes)


def _paper_ablations(model: str) -> pd.DataFrame:
    table = paper_numbers().query("table == '1'")
    return table[table["model"] == base_model(model)]


def _unknown(model: str) -> list[str]:
    table = _paper_ablations(model).query("method == ''")
    return [f"{row['wording']} {row['value']:g} ({task_name(row['task'])})" for _, row in table.iterrows()]


def _ablation_parts(name: str) -> tuple[str, ...]:
    """Layer budget, importance and what leaves first, of a configuration's name."""
    evicted = {"text_first": "vision", "vision_first": "text", "as_scored": ""}
    if name.startswith("random_"):
        return "uniform", "random", evicted[name.removesuffix(" (plain)").removeprefix("random_")]
    if not name.startswith("ablation ("):
        return name, "", ""
    parts = name.removeprefix("ablation (").removesuffix(")").split("-")
    budget, importance, retention = (*parts, "as_scored")[:3]
    shown = _PARTS.get(importance, importance.replace("_", "+").upper() if "_" in importance else importance)
    return budget if budget == "uniform" else budget.upper(), shown, evicted.get(retention, retention)


def _components(model: str, scores: pd.DataFrame, tasks: list[str]) -> Layout:
    """TVB, TWR and TPR switched on one by one."""
    there = set(scores["name"])
    names = list(COMPONENTS.values())
    found = {name for name in names if name in there}
    retentions = sorted(set(scores[scores["name"].isin(found)]["retention"]), reverse=True)
    rows = [Row("full", 1.0, ("100 %", "full", "", ""))] if "full" in there else []
    for retention in retentions:
        for switches, name in COMPONENTS.items():
            marks = tuple("x" if on else "" for on in switches)
            rows.append(Row(name, retention, (f"{100 * retention:.3g} %", *marks)))
    enough = found > {"tgv_kv"} or (found and "tgv_kv" not in found)
    heads = ("budget", "TVB", "TWR", "TPR")
    return Layout("5", "components of TGV-KV", model, heads, rows if enough else [], tasks)


def _pruning(model: str, scores: pd.DataFrame, tasks: list[str]) -> Layout:
    names = [name for name in _names(scores) if name.startswith(PRUNING)]
    chosen = [*(["full"] if "full" in set(scores["name"]) else []), "tgv_kv", *names]
    rows = list(_by_budget(scores, chosen)) if names else []
    return Layout("6", "token pruning", model, ("budget", "method"), rows, tasks)

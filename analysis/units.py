"""Which metric a column shows, and in which unit: shares in %, caption metrics times 100, points as they are."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatch

import pandas as pd

from .names import metric_name, task_name

_MOST = 2  # CIDEr, which counts as a share, goes above 1
_IN_PERCENT = "videott_"  # metrics that come in % themselves
_TIMES_100 = ("*CIDEr", "*Bleu_[1-4]", "*METEOR", "*ROUGE_L")
"""Metrics that are no share of anything; papers give them times 100."""
_MEASURED = ["task", "metric", "scale"]


def scales(scores: pd.DataFrame) -> pd.Series:
    """What scores are shown times: 100 for metrics that lmms-eval gives as a number up to 1 (CIDEr: 2), else 1."""
    highest = scores.groupby(["model", "task"])["score"].transform("max")
    is_share = highest.le(_MOST) & ~scores["metric"].str.startswith(_IN_PERCENT)
    return is_share.map({True: 100, False: 1})


def unit(metric: str, scale: int) -> str:
    """Of a score as shown: `%`, `times 100`, or `points`."""
    if scale == 1:
        return "%" if metric.startswith(_IN_PERCENT) else "points"
    return "times 100" if any(fnmatch(metric, pattern) for pattern in _TIMES_100) else "%"


def measure(metric: str, shown: str) -> str:
    """A metric with the unit it is shown in: `CIDEr times 100`, `ANLS in %`."""
    return f"{metric_name(metric)} {shown if shown == 'times 100' else f'in {shown}'}"


def measures(shown: Iterable[tuple[str, str, str]]) -> str:
    """What columns show: `chart: relaxed accuracy in %; scene, video mc: exact match in %`.

    Args:
        shown: task, metric and unit of every score.
    """
    by_task: dict[str, list[str]] = {}
    for task, metric, of in dict.fromkeys(shown):
        by_task.setdefault(task, []).append(measure(metric, of))
    tasks: dict[str, list[str]] = {}
    for task, found in by_task.items():
        tasks.setdefault(" or ".join(found), []).append(task_name(task))
    return "; ".join(f"{', '.join(names)}: {words}" for words, names in tasks.items())


def measures_of(scores: pd.DataFrame) -> str:
    """`measures` of the columns of a table of all tasks, as `runs.load` gives the scores."""
    rows = scores.sort_values("task", kind="stable")
    return measures(
        (task, metric, unit(metric, scale)) for task, metric, scale in rows[_MEASURED].itertuples(index=False)
    )

"""`--limit` below 1 as a share of each task.

lmms-eval puts the number it finds for the first task in place of the share, so all further tasks of a run get that
number. Here every task gets its own, and scoring looks at as many documents as the largest of them.
"""

from __future__ import annotations

from typing import Any


class _Most(int):
    """The largest limit of the tasks so far, with the share it came from."""

    share: float


def count_per_task() -> None:
    """Corrects lmms-eval's evaluator in this process; does nothing the second time."""
    from lmms_eval import evaluator

    stock = evaluator.get_sample_size
    if getattr(stock, "per_task", False):
        return

    def get_sample_size(task: Any, limit: Any) -> int | None:
        share, before = (limit.share, int(limit)) if isinstance(limit, _Most) else (limit, 0)
        if share is None or not 0 < share < 1:
            return stock(task, share)
        own, build = stock(task, share), task.build_all_requests
        task.build_all_requests = lambda **arguments: build(**arguments | {"limit": own})
        most = _Most(max(own, before))
        most.share = share
        return most

    get_sample_size.per_task = True  # type: ignore[attr-defined]
    evaluator.get_sample_size = get_sample_size

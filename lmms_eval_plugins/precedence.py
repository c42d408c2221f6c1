"""Our Video-TT tasks in place of lmms-eval's.

Of two tasks with one name lmms-eval takes its own, whatever `--include_path` says; and its own Video-TT calls a judge
while scoring, once, and takes a network error for a wrong answer.
"""

from __future__ import annotations

from typing import Any

from lmms_eval_plugins.needs import TASKS_DIR


def our_tasks_first() -> None:
    """Corrects lmms-eval's evaluator in this process; does nothing the second time."""
    from lmms_eval import evaluator

    stock = evaluator.get_task_dict
    if getattr(stock, "ours_first", False):
        return

    def get_task_dict(names: Any, manager: Any, task_type: str) -> Any:
        manager.task_index.update({name: {"type": "task", "yaml_path": path} for name, path in replaced().items()})
        return stock(names, manager, task_type)

    get_task_dict.ours_first = True  # type: ignore[attr-defined]
    evaluator.get_task_dict = get_task_dict


def replaced() -> dict[str, str]:
    """Files by the name of their task."""
    return {path.stem: str(path) for path in (TASKS_DIR / "videott").glob("*.yaml")}

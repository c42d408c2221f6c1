"""A share given as `--limit` is a share of each task's own size, whatever the order of the tasks."""

import pytest
from lmms_eval.evaluator import simple_evaluate
from lmms_eval.tasks import TaskManager

from lmms_eval_plugins.tasks import mini

from . import toy

TASK = """\
include: {template}
task: {name}
dataset_path: !function lmms_eval_plugins.tasks.mini.dataset.scene_path
process_docs: !function sizes.{name}
process_results: !function lmms_eval_plugins.tasks.mini.scoring.scene_results
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
generation_kwargs: {{max_new_tokens: 1, temperature: 0, do_sample: false}}
"""
CODE = "def a_small(docs): return docs.select(range(3))\ndef b_large(docs): return docs.select(range(8))\n"
CODE += "def c_small(docs): return docs.select(range(3))\n"


@pytest.fixture
def manager(tmp_path):
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "sizes.py").write_text(CODE)
    template = mini.__path__[0] + "/_mini_template_yaml"
    for name in ("a_small", "b_large", "c_small"):
        (folder / f"{name}.yaml").write_text(TASK.format(template=template, name=name))
    return TaskManager(include_path=str(folder), include_defaults=False)


@pytest.mark.parametrize(("limit", "counts"), [(0.5, [2, 4, 2]), (2, [2, 2, 2]), (None, [3, 8, 3])])
def test_each_task_gets_its_own_share(limit, counts, manager, checkpoint, environment):
    tasks = ["a_small", "b_large", "c_small"]
    model = toy.wrapper(checkpoint("llava"), batch_size=8)
    results = simple_evaluate(model=model, tasks=tasks, task_manager=manager, limit=limit)
    assert [len(results["samples"][task]) for task in tasks] == counts
    assert len(toy.records(environment)) == sum(counts)

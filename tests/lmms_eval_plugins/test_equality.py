"""The paper's grid on the embedded tasks: from shared prefills, batched or in turn, as from separate runs.

`EQUALITY_SAMPLES` is the number of samples per task; two take about half a minute on one core.
"""

import os

import pytest
from lmms_eval.tasks import TaskManager, get_task_dict

from lmms_eval_plugins import session
from lmms_eval_plugins.needs import TASKS_DIR
from lmms_eval_plugins.sweeps import environment as variables
from lmms_eval_plugins.sweeps import load_sweep
from tiny_vlm import MODEL_DIR

from . import grid, toy

SAMPLES = int(os.environ.get("EQUALITY_SAMPLES", "2"))
TASKS = ["mini_document", "mini_caption"]  # short answers and long ones
SAME = ("status", "answer", "answer_tokens", "generated_tokens", "stop_reason", "prompt_hash")
SAME_PROOF = ("kept_text", "kept_vision", "prompt_tokens", "retention_achieved")


@pytest.fixture
def answered(environment, monkeypatch):
    """Answers the samples of all tasks; returns what has to be equal, by fingerprint, task and sample."""
    monkeypatch.setattr(session, "_running", [session.Session()])  # weights are loaded once
    tasks = get_task_dict(TASKS, TaskManager(include_path=str(TASKS_DIR), include_defaults=False), "chat")
    for task in tasks.values():
        task.build_all_requests(limit=SAMPLES)

    def run(folder, batch, config, **more):
        with monkeypatch.context() as patch:
            for name, value in (variables(config) | more).items():
                patch.setenv(name, value)
            model = grid.wrapper(MODEL_DIR, environment / folder, batch)
            model.task_dict = {name: task.dataset for name, task in tasks.items()}
            model.generate_until([instance for task in tasks.values() for instance in task.instances])
        for opened in model._runs.values():
            opened.store.close()
        return {
            (line["fingerprint"], line["task"], line["doc_id"]): [line[name] for name in SAME]
            + [line["eviction"][name] for name in SAME_PROOF]
            for line in toy.records(environment / folder)
        }

    return run


def test_every_configuration_answers_as_it_does_alone(answered):
    configs = load_sweep("paper")
    for config in configs:
        alone = answered("alone", 1, config)
    assert len(configs) == 29
    assert len(alone) == 29 * len(TASKS) * SAMPLES
    assert len({tuple(map(str, values[:2])) for values in alone.values()}) > len(TASKS) * SAMPLES  # eviction tells
    assert answered("in_turn", 1, configs[0], KV_SWEEP="paper", KV_DECODE_BATCH="1") == alone
    assert answered("batched", 3, configs[0], KV_SWEEP="paper") == alone

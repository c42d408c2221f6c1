"""Sampled answers follow from the seed and the prompt: in any order, batch and run; greedy ones know no seed."""

import pytest
import torch
from lmms_eval import evaluator
from lmms_eval.tasks import TaskManager

from lmms_eval_plugins.models.llava_hf import LlavaHfChat

from . import broken_task, grid, toy

WARM = {"temperature": 1.5, "do_sample": True}
DOCS = toy.documents()


@pytest.fixture(params=["full", "tgv_kv"])
def drawn(request, checkpoint, environment, monkeypatch):
    """Answers under a seed of lmms-eval, which sets torch's before it makes the model."""
    monkeypatch.setenv("KV_CACHE_TYPE", request.param)
    monkeypatch.setenv("PRUNE_RATIO", "0" if request.param == "full" else "0.7")

    llava = checkpoint("llava")  # made before, as making it sets a seed

    def answers(seed, docs=DOCS, folder="store", batch=1, **gen_kwargs):
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            return grid.ask(grid.wrapper(llava, environment / folder, batch), docs, **WARM | gen_kwargs)

    return answers


def test_a_seed_has_answers_of_its_own_in_the_same_store(drawn, environment):
    first, second = drawn(1), drawn(2)
    assert first != second
    assert [drawn(1), drawn(2)] == [first, second]
    records = toy.records(environment)
    assert [record["seed"] for record in records] == [1] * 4 + [2] * 4
    assert len({record["prompt_hash"] for record in records}) == 8


def test_neither_order_nor_batch_nor_a_resumed_run_decides(drawn):
    usual = drawn(7)
    assert drawn(7, folder="batched", batch=3) == usual
    assert drawn(7, DOCS[::-1], folder="reversed") == usual[::-1]
    drawn(7, DOCS[:2], folder="resumed")
    assert drawn(7, folder="resumed", batch=4) == usual


def test_equal_requests_of_one_run_are_drawn_apart(checkpoint, environment):
    model, task = toy.wrapper(checkpoint("llava"), store=environment), toy.ToyTask(DOCS[:1])
    model.task_dict = {toy.TASK: {toy.SPLIT: task.docs}}
    requests = [request for _ in range(4) for request in task.requests(chat=True, gen_kwargs=toy.GREEDY | WARM)]
    answers = [result.text for result in model.generate_until(requests)]
    assert len(set(answers)) > 1
    assert [record["repeat"] for record in toy.records(environment)] == [0, 1, 2, 3]


def test_greedy_answers_are_found_under_any_seed(drawn, environment):
    assert drawn(1, temperature=0, do_sample=False) == drawn(2, temperature=0, do_sample=False)
    assert [record["seed"] for record in toy.records(environment)] == [None] * 4


def test_the_checkpoint_decides_how_to_sample_where_the_task_does_not(checkpoint, environment):
    model = grid.wrapper(checkpoint("llava"), environment)
    model.model.generation_config.top_k = 1
    assert grid.ask(model, DOCS, **WARM) == grid.ask(grid.wrapper(checkpoint("llava"), environment), DOCS)


def test_the_seed_is_the_one_that_lmms_eval_sets(checkpoint, environment, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluator.models, "get_model", lambda *args: LlavaHfChat)  # as the entry point has it
    manager = TaskManager(include_path=str(broken_task.write(tmp_path / "tasks")), include_defaults=False)
    evaluator.simple_evaluate(
        model="llava_hf",
        model_args=f"pretrained={checkpoint('llava')},device_map=cpu",
        tasks=["broken_scene"],
        task_manager=manager,
        limit=1,
        gen_kwargs="temperature=1.5,do_sample=True",
        torch_random_seed=5,
    )
    assert [record["seed"] for record in toy.records(environment)] == [5]

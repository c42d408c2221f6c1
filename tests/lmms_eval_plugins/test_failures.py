"""A sample that cannot be answered is recorded as failed, is never scored, and the run does not pass."""

import atexit
import json
import os
import sys

import pytest
import torch
from lmms_eval.evaluator import simple_evaluate
from lmms_eval.tasks import TaskManager

from lmms_eval_plugins import errors, preflight
from lmms_eval_plugins.errors import RunStopped

from . import broken_task, toy


def one_broken():
    docs = toy.documents()
    docs[1]["broken"] = True
    return toy.ToyTask(docs)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_others_are_answered_and_the_run_ends_with_the_count(batch_size, checkpoint, tgv, environment, capsys):
    intact = toy.ask(toy.wrapper(checkpoint("llava")), toy.ToyTask(toy.documents()))
    for path in environment.rglob("records*"):
        path.unlink()
    model = toy.wrapper(checkpoint("llava"), batch_size=batch_size)
    answers = toy.ask(model, one_broken())
    assert [answers[i] for i in (0, 2, 3)] == [intact[i] for i in (0, 2, 3)]
    by_doc = {record["doc_id"]: record for record in toy.records(environment)}
    assert [by_doc[i]["status"] for i in range(4)] == ["ok", "failed", "ok", "ok"]
    assert by_doc[1]["error"] == "OSError: picture cannot be read"
    assert by_doc[1]["answer"] is None
    with pytest.raises(RunStopped) as stopped:
        model.clean()
    assert stopped.value.code == 1
    assert "1 of 4 samples failed" in capsys.readouterr().err
    assert json.loads(next(environment.rglob("summary.json")).read_text())["failed"] == 1


def test_failures_may_be_allowed_and_are_left_out_of_the_scores(checkpoint, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KV_ALLOW_FAILURES", "1")
    manager = TaskManager(include_path=str(broken_task.write(tmp_path / "tasks")), include_defaults=False)
    model = toy.wrapper(checkpoint("llava"))
    results = simple_evaluate(model=model, tasks=["broken_scene"], task_manager=manager, limit=3)
    assert [sample["doc_id"] for sample in results["samples"]["broken_scene"]] == [0, 2]
    assert results["throughput"]["avg_failed_samples"] == 1
    assert "1 of 3 samples failed and are left out" in capsys.readouterr().out


@pytest.fixture
def status(monkeypatch):
    """The status with which a run by hand would end now, where lmms-eval ends it with 0."""
    registered = []
    monkeypatch.setattr(errors.atexit, "register", registered.append)
    monkeypatch.setattr(errors, "_failed", [])
    monkeypatch.setattr(preflight.logger, "configure", lambda **_: None)
    monkeypatch.setattr(preflight, "_check_run", lambda args: None)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setattr(sys, "argv", ["/somewhere/lmms_eval/__main__.py", "--model", "llava_hf", "--tasks", "toy"])
    preflight.prepare_command_line()

    def ended():
        if child := os.fork():
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        atexit._clear()
        for function in reversed(registered):
            function()
        os._exit(0)

    return ended


@pytest.mark.parametrize("missing", [False, True])
def test_a_run_by_hand_whose_records_are_missing_fails_when_all_is_written(
    missing, status, checkpoint, environment, capfd
):
    model = toy.wrapper(checkpoint("llava"))
    toy.ask(model, toy.ToyTask(toy.documents()[:2]))
    if missing:
        next(environment.rglob("records.rank0.jsonl")).write_text("")
    model.clean()
    said = capfd.readouterr().err
    assert ("error: records of 2 of 2 samples of toy are not in" in said) is missing
    assert status() == missing


def test_a_run_in_which_all_failed_never_passes(checkpoint, monkeypatch):
    monkeypatch.setenv("KV_ALLOW_FAILURES", "1")
    model = toy.wrapper(checkpoint("llava"))
    toy.ask(model, toy.ToyTask([{"text": "?", "images": [], "broken": True}]))
    with pytest.raises(RunStopped):
        model.clean()


def test_running_out_of_memory_in_the_middle_of_a_prefill_fails_that_sample_only(checkpoint, tgv, environment):
    expected = toy.ask(toy.wrapper(checkpoint("llava"), batch_size=2), toy.ToyTask(toy.documents()))
    longest = max(record["eviction"]["prompt_tokens"] for record in toy.records(environment))
    model = toy.wrapper(checkpoint("llava"), store=environment / "hit", batch_size=2)
    layer = model.model.model.language_model.layers[1]

    def hook(module, args, kwargs):
        if (kwargs.get("hidden_states", args[0] if args else None)).shape[1] == longest:
            raise torch.OutOfMemoryError("CUDA out of memory")

    handle = layer.register_forward_pre_hook(hook, with_kwargs=True)
    answers = toy.ask(model, toy.ToyTask(toy.documents()))
    handle.remove()
    later = {record["doc_id"]: record for record in toy.records(environment / "hit")}
    failed = [doc_id for doc_id, record in later.items() if record["status"] == "failed"]
    assert len(failed) == 1
    assert "OutOfMemoryError" in later[failed[0]]["error"]
    assert [answers[i] for i in range(4) if i not in failed] == [expected[i] for i in range(4) if i not in failed]
    with pytest.raises(RunStopped):
        model.clean()
    again = toy.wrapper(checkpoint("llava"), store=environment / "hit", batch_size=2)
    assert toy.ask(again, toy.ToyTask(toy.documents())) == expected
    assert len(toy.records(environment / "hit")) == 5


def test_padding_requests_are_neither_answered_nor_recorded(checkpoint, environment):
    task = toy.ToyTask(toy.documents()[:2])
    model = toy.wrapper(checkpoint("llava"))
    model.task_dict = {toy.TASK: {toy.SPLIT: task.docs}}
    requests = task.requests(chat=True)
    requests[1].metadata["__padding_only__"] = True
    assert model.generate_until(requests)[1].text == ""
    assert [record["doc_id"] for record in toy.records(environment)] == [0]

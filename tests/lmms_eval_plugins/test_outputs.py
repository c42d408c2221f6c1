"""What lmms-eval writes for a run: each has files of its own, and they say where its records are."""

import hashlib
import json
import os
import resource
import signal
from pathlib import Path

import pytest
from lmms_eval import evaluator
from lmms_eval.loggers import evaluation_tracker
from lmms_eval.loggers.evaluation_tracker import EvaluationTracker
from loguru import logger

from analysis.results import score_files
from lmms_eval_plugins import outputs
from lmms_eval_plugins.errors import RunStopped

from .grid import forked

SECOND = "20260102_030405"
SAMPLE = {"arguments": [["prompt"]], "resps": ["a"], "filtered_resps": ["a"], "target": "a", "doc": {}, "doc_hash": "h"}


OURS = "lmms_eval_plugins.models.llava_hf.LlavaHfChat (chat)"


def finished(folder, fingerprint, score, backend=OURS, task="task", figures=None, **more):
    """A run that began in that second, as lmms-eval writes it."""
    outputs.belong_to(fingerprint, folder.parent / "store" / fingerprint)
    if figures is not None:
        outputs.say(figures)
    tracker = EvaluationTracker(output_path=str(folder))
    tracker.general_config_tracker.log_experiment_args("llava_hf", "pretrained=model", "", "", False)
    results = {"results": {task: {"exact_match,none": score}}, "config": {"model_backend": backend}, "date": SECOND}
    samples = {task: [SAMPLE | {"doc_id": score}]}
    tracker.save_results_aggregated(results=results | more, samples=samples, datetime_str=SECOND)
    tracker.save_results_samples(task_name=task, samples=samples[task])


def test_runs_that_began_in_the_same_second_have_files_of_their_own(tmp_path):
    for number in range(3):
        finished(tmp_path / "logs", f"v1-{number}", number)
    found = {}
    for path in score_files(tmp_path / "logs"):
        content = json.loads(path.read_text())
        samples = path.with_name(path.name.replace("_results.json", "_samples_task.jsonl"))
        docs = [json.loads(line)["doc_id"] for line in samples.read_text().splitlines()]
        found[content["date"]] = content["results"]["task"]["exact_match,none"], docs
    assert found == {SECOND: (0, [0]), f"{SECOND}-2": (1, [1]), f"{SECOND}-3": (2, [2])}


def test_results_say_where_their_records_are(tmp_path):
    finished(tmp_path / "logs", "v1-0", 0.5)
    finished(tmp_path / "logs", "v1-1", 0.5, backend="lmms_eval.models.chat.llava_hf.LlavaHf (chat)")
    ours, others = score_files(tmp_path / "logs")
    kv = json.loads(ours.read_text())["kv"]
    assert kv == {"fingerprint": "v1-0", "records": "../../store/v1-0", "tasks": {}}
    assert (ours.parent / kv["records"]).resolve() == tmp_path / "store" / "v1-0"
    assert "kv" not in json.loads(others.read_text())


def test_results_that_could_not_be_written_stop_the_run_and_leave_no_file(tmp_path):
    loop = {}
    with pytest.raises(RunStopped) as stopped:
        finished(tmp_path / "logs", "v1-0", 0.5, loop=loop | {"itself": loop.setdefault("itself", loop)})
    assert "Could not save results aggregated: ValueError('Circular reference detected')" in stopped.value.message
    assert score_files(tmp_path / "logs") == []
    (tmp_path / "file").write_text("")
    with pytest.raises(RunStopped, match="1"):
        finished(tmp_path / "file", "v1-0", 0.5)
    assert Path(tmp_path / "file").read_text() == ""


@pytest.mark.parametrize("size", [0, 50, 4000])
def test_a_full_disk_stops_the_run_whatever_the_verbosity(size, tmp_path, capsys):
    """A real one: lmms-eval writes without closing, so that the error may come where nobody sees it."""

    def run():
        logger.remove()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        finished(tmp_path / "logs", "v1-0", 0.5, more="x" * 3000)

    child = forked(run)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (1 if size < 4000 else 0)
    assert len(score_files(tmp_path / "logs")) == (0 if size < 4000 else 1)


def test_samples_that_could_not_be_written_stop_the_run(tmp_path, monkeypatch):
    outputs.belong_to("v1-0", tmp_path / "store" / "v1-0")
    monkeypatch.setitem(evaluation_tracker.__dict__, "sanitize_list", lambda _: 1 / 0)
    with pytest.raises(RunStopped) as stopped:
        finished(tmp_path / "logs", "v1-0", 0.5)
    assert "Could not save sample results: ZeroDivisionError" in stopped.value.message


def test_a_task_s_name_and_text_of_any_kind_are_written(tmp_path):
    odd, task = "caf\udce9", "../../mine/task"
    prompts = {task: {"prompts": {"3": "hash"}}}
    finished(tmp_path / "logs", "v1-0", 3, task=task, figures=prompts, odd=odd)
    (scores,) = score_files(tmp_path / "logs")
    assert json.loads(scores.read_text())["odd"] == odd
    assert json.loads(scores.read_text())["kv"]["tasks"] == prompts
    (samples,) = tmp_path.rglob("*_samples_*.jsonl")
    assert samples.parent == scores.parent
    assert json.loads(samples.read_text())[outputs.PROMPT] == "hash"
    assert evaluator.hash_string(odd) != evaluator.hash_string("caf")
    assert evaluator.hash_string("café") == hashlib.sha256("café".encode()).hexdigest()

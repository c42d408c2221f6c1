"""What lmms-eval writes for a run: each has files of its own, and they say where its records are."""

import json
from pathlib import Path

from lmms_eval.loggers.evaluation_tracker import EvaluationTracker

from analysis.results import score_files
from lmms_eval_plugins import outputs

SECOND = "20260102_030405"
SAMPLE = {"arguments": [["prompt"]], "resps": ["a"], "filtered_resps": ["a"], "target": "a", "doc": {}, "doc_hash": "h"}


def finished(folder, fingerprint, score, backend="lmms_eval_plugins.models.llava_hf.LlavaHfChat (chat)", **more):
    """A run that began in that second, as lmms-eval writes it."""
    outputs.belong_to(fingerprint, folder.parent / "store" / fingerprint)
    tracker = EvaluationTracker(output_path=str(folder))
    tracker.general_config_tracker.log_experiment_args("llava_hf", "pretrained=model", "", "", False)
    results = {"results": {"task": {"exact_match,none": score}}, "config": {"model_backend": backend}, "date": SECOND}
    samples = {"task": [SAMPLE | {"doc_id": score}]}
    tracker.save_results_aggregated(results=results | more, samples=samples, datetime_str=SECOND)
    tracker.save_results_samples(task_name="task", samples=samples["task"])


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
    assert kv == {"fingerprint": "v1-0", "records": "../../store/v1-0"}
    assert (ours.parent / kv["records"]).resolve() == tmp_path / "store" / "v1-0"
    assert "kv" not in json.loads(others.read_text())


def test_results_that_could_not_be_written_leave_no_file(tmp_path):
    loop = {}
    finished(tmp_path / "logs", "v1-0", 0.5, loop=loop | {"itself": loop.setdefault("itself", loop)})
    assert score_files(tmp_path / "logs") == []
    (tmp_path / "file").write_text("")
    finished(tmp_path / "file", "v1-0", 0.5)
    assert Path(tmp_path / "file").read_text() == ""

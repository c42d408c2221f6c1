"""A score is of the samples of its own run: what was judged and what was not add up to them, or it is refused."""

import hashlib
import json
import os

import pytest

from lmms_eval_plugins.files import file_name
from lmms_eval_plugins.judge import __main__ as command
from lmms_eval_plugins.judge.scoring import METRIC

TASK = "videott_no_leading_oe"
PROMPTS = ["red", "red", "blue", "red"]


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("KV_JUDGE", "exact")


def write(folder, date, answers, fingerprint="v1-0", result=True, failed=0, task=TASK):
    """What a run leaves of its answers; without its result if it was killed before."""
    place = folder / "full" / "model"
    place.mkdir(parents=True, exist_ok=True)
    lines, hashes = [], ""
    for number, answer in enumerate(answers):
        entry = {"question": "?", "answer": "red", "prediction": answer, "judge": "none"}
        lines.append(json.dumps({"doc_id": number, "doc_hash": str(number), METRIC: entry}) + "\n")
        hashes += f"sample_{number}{number}"
    samples = place / f"{date}_samples_{file_name(task)}.jsonl"
    samples.write_text("".join(lines))
    os.utime(samples, (int(date), int(date)))
    metrics = {f"{METRIC},none": None}
    scores = {"results": {task: metrics}, "task_hashes": {task: hashlib.sha256(hashes.encode()).hexdigest()}}
    scores["config"] = {"model_args": f"pretrained=model,kv_fingerprint={fingerprint}"}
    (place / f"{date}_results.json").write_text(json.dumps(scores))
    content = {"config": {"method": "full"}, "fingerprint": fingerprint, "lmms_eval_date": date, "metrics": metrics}
    content["counts"] = {"samples": len(answers) + failed, "failed": failed}
    if result:
        (folder / "full" / f"result.{file_name(task)}.json").write_text(json.dumps(content))
    return samples


def result(folder):
    return json.loads((folder / "full" / f"result.{TASK}.json").read_text())


def scores(folder):
    """By date, what lmms-eval's own results say."""
    files = sorted((folder / "full" / "model").glob("*_results.json"))
    return {path.name[:4]: json.loads(path.read_text())["results"][TASK][f"{METRIC},none"] for path in files}


def refusal(folder, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main([str(folder)])
    assert stopped.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_answers_of_a_later_run_that_was_killed_do_not_replace_those_of_the_result(tmp_path, capsys):
    write(tmp_path, "2026", PROMPTS)
    later = write(tmp_path, "2027", ["red", "red"], result=False)
    assert command.main([str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert f"[kv] {later}: left out, its run did not finish" in output
    assert f"[kv] full {TASK}: 75 %, 4 of 4 judged" in output
    assert result(tmp_path)["metrics"][f"{METRIC},none"] == 75.0
    assert result(tmp_path)["counts"] == {"samples": 4, "failed": 0, "judged": 4, "unjudged": 0}
    assert scores(tmp_path) == {"2026": 75.0, "2027": None}


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("task", ["tasks/a:b.yaml", "../out", "t" * 300, "50%", "a_samples_b"])
def test_the_name_of_a_task_may_be_no_name_of_a_file(task, by_hand, tmp_path, capsys):
    samples = write(tmp_path, "2026", PROMPTS, task=task, result=not by_hand)
    assert command.main([str(tmp_path)]) == 0
    assert f"[kv] full {task}: 75 %, 4 of 4 judged" in capsys.readouterr().out
    content = json.loads((samples.parent / "2026_results.json").read_text())
    assert content["results"][task][f"{METRIC},none"] == 75.0
    if not by_hand:
        (mine,) = (tmp_path / "full").glob("result.*.json")
        assert json.loads(mine.read_text())["metrics"][f"{METRIC},none"] == 75.0
    samples.write_text("".join(samples.read_text().splitlines(keepends=True)[:3]))
    assert f"{samples}: not the samples of 2026_results.json, or not all of them" in refusal(tmp_path, capsys)


def test_failed_samples_are_counted_beside_those_that_were_judged(tmp_path):
    write(tmp_path, "2026", PROMPTS, failed=2)
    assert command.main([str(tmp_path)]) == 0
    assert result(tmp_path)["counts"] == {"samples": 6, "failed": 2, "judged": 4, "unjudged": 0}


def test_a_result_without_the_samples_of_its_run_is_refused(tmp_path, capsys):
    write(tmp_path, "2026", PROMPTS).unlink()
    write(tmp_path, "2027", ["red", "red"], result=False)
    before = result(tmp_path)
    line = refusal(tmp_path, capsys)
    assert f"result.{TASK}.json is of the run of 2026, whose samples are not here, but 2027_samples_{TASK}" in line
    assert "run the sweep again" in line
    assert result(tmp_path) == before


@pytest.mark.parametrize("by_hand", [False, True])
def test_samples_that_are_not_all_of_the_run_are_refused(by_hand, tmp_path, capsys):
    samples = write(tmp_path, "2026", PROMPTS, result=not by_hand)
    lines = samples.read_text().splitlines(keepends=True)
    samples.write_text("".join(lines[:3]))
    assert f"{samples}: not the samples of 2026_results.json, or not all of them" in refusal(tmp_path, capsys)
    samples.write_text("".join([*lines, *lines[:1]]))
    assert f"{samples}: 5 samples of 4 documents, so more than one run wrote it" in refusal(tmp_path, capsys)


def test_counts_and_fingerprint_of_the_result_must_be_those_of_the_samples(tmp_path, capsys):
    samples = write(tmp_path, "2026", PROMPTS)
    path, content = tmp_path / "full" / f"result.{TASK}.json", result(tmp_path)
    path.write_text(json.dumps(content | {"counts": {"samples": 40, "failed": 1}}))
    assert f"{samples}: 4 samples, but {path.name} counts 40, 1 of them failed" in refusal(tmp_path, capsys)
    path.write_text(json.dumps(content | {"fingerprint": "v1-1"}))
    assert f"{samples}: of v1-0, but {path.name} is of v1-1" in refusal(tmp_path, capsys)


@pytest.mark.parametrize("said", ["by an argument", "by the results"])
def test_of_runs_by_hand_the_newest_of_every_fingerprint_is_judged(said, tmp_path):
    runs = {"2025": (["blue", "blue"], "v1-1"), "2026": (PROMPTS, "v1-0"), "2027": (["red", "red"], "v1-1")}
    for date, (answers, fingerprint) in runs.items():
        write(tmp_path, date, answers, fingerprint, result=False)
        if said == "by the results":  # as `--config` leaves them: arguments are not completed there
            path = tmp_path / "full" / "model" / f"{date}_results.json"
            content = json.loads(path.read_text()) | {"config": {"model_args": "pretrained=model"}}
            path.write_text(json.dumps(content | {"kv": {"fingerprint": fingerprint, "records": ""}}))
    assert command.main([str(tmp_path)]) == 0
    assert scores(tmp_path) == {"2025": None, "2026": 75.0, "2027": 100.0}

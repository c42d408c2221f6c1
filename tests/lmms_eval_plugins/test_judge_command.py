"""`python -m lmms_eval_plugins.judge`: answers of a folder are asked for once, and what was judged is never lost."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from lmms_eval_plugins.errors import RunStopped
from lmms_eval_plugins.judge import __main__ as command
from lmms_eval_plugins.judge import asking, client, prompt
from lmms_eval_plugins.judge.scoring import METRIC
from lmms_eval_plugins.judge.verdicts import Verdicts
from lmms_eval_plugins.outputs import PROMPT

from .stub_judge import GOOD, MODEL, fails, says, serving, slow

KEY = "sk-very-secret-0123456789"
TASK = "videott_no_leading_oe"
BAD = "{'pred': 'no', 'score': 1}"


@pytest.fixture(autouse=True)
def judge_environment(monkeypatch):
    for name, value in {
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "OPENAI_API_KEY": KEY,
        "GPT_EVAL_MODEL_NAME": "judge",
        "KV_JUDGE_BACKOFF": "0.005",
        "KV_JUDGE_TIMEOUT": "5",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OPENAI_API_URL", raising=False)


def write_run(folder, method, answers):
    """What a sweep leaves of one configuration; question i is answered by answers[i]."""
    label = "full" if method == "full" else f"{method}-0.50"
    metrics = {"alias": TASK, f"{METRIC},none": None, f"{METRIC}_stderr,none": "N/A"}
    (folder / label / "model").mkdir(parents=True)
    (folder / label / "model" / "2026_results.json").write_text(json.dumps({"results": {TASK: metrics}}))
    lines = []
    for number, answer in enumerate(answers):
        entry = {"question": f"Question {number}?", "answer": "red", "prediction": answer, "judge": "none"}
        lines.append(json.dumps({"doc_id": number, PROMPT: str(number), METRIC: entry}))
    (folder / label / "model" / f"2026_samples_{TASK}.jsonl").write_text("\n".join(lines) + "\n")
    content = {"config": {"method": method}, "metrics": metrics, "counts": {"samples": len(answers), "failed": 0}}
    content["lmms_eval_date"] = "2026"
    (folder / label / f"result.{TASK}.json").write_text(json.dumps(content))


@pytest.fixture
def folder(tmp_path):
    """Three distinct answers of the full cache, of which TGV-KV gives one again and two of its own."""
    write_run(tmp_path / "out", "full", ["red", "reddish", "blue"])
    write_run(tmp_path / "out", "tgv_kv", ["red", "green", "black"])
    return tmp_path / "out"


def result(folder, label="tgv_kv-0.50"):
    return json.loads((folder / label / f"result.{TASK}.json").read_text())


def by_answer(**replies):
    """GOOD, or what is said about an answer."""

    def reply(handler):
        content = handler.server.requests[-1]["body"]["messages"][0]["content"]
        said = next((text for answer, text in replies.items() if f"Predicted Answer: {answer}\n" in content), GOOD)
        (said if callable(said) else says(said))(handler)

    return reply


def judge(folder, server, monkeypatch, yes=True, concurrency=1):
    if server is not None:
        monkeypatch.setenv("OPENAI_API_URL", server.url)
    monkeypatch.setenv("KV_JUDGE_CONCURRENCY", str(concurrency))
    return command.main([str(folder), *(["--yes"] if yes else [])])


def test_every_distinct_answer_is_asked_once_and_the_scores_are_written(folder, monkeypatch, capsys, environment):
    with serving([by_answer(green=BAD, black=BAD, blue=BAD)]) as server:
        assert judge(folder, server, monkeypatch) == 0
        assert len(server.requests) == 5
        assert judge(folder, server, monkeypatch) == 0
        assert len(server.requests) == 5
    output = capsys.readouterr()
    assert "judge judge at 127.0.0.1: 6 answers, 5 of them distinct, 0 judged before; 5 requests" in output.out
    assert f"[kv] full {TASK}: 66.67 %, 3 of 3 judged" in output.out
    full, mine = result(folder, "full"), result(folder)
    assert full["metrics"][f"{METRIC},none"] == pytest.approx(200 / 3)
    assert mine["metrics"][f"{METRIC},none"] == pytest.approx(100 / 3)
    assert mine["metrics"][f"{METRIC}_stderr,none"] == pytest.approx(100 / 3)
    assert mine["counts"] == {"samples": 3, "failed": 0, "judged": 3, "unjudged": 0}
    assert mine["judge"] == {"kind": "api", "model": MODEL, "prompt_version": prompt.VERSION}
    assert mine["difference_to_full"][METRIC]["mean"] == pytest.approx(-100 / 3, abs=1e-5)
    own = json.loads((folder / "tgv_kv-0.50" / "model" / "2026_results.json").read_text())
    assert own["results"][TASK][f"{METRIC},none"] == pytest.approx(100 / 3)
    assert own["judge"][TASK] == mine["judge"] | {"judged": 3, "unjudged": 0}
    written = [path for root in (folder, environment) for path in root.rglob("*") if path.is_file()]
    assert len(written) > 6
    assert not [path for path in written if KEY.encode() in path.read_bytes()]
    assert KEY not in output.out + output.err


def test_what_cannot_be_read_is_unjudged_never_zero_and_asked_again_alone(folder, monkeypatch, capsys):
    with serving([by_answer(green="no idea", black=BAD)]) as server:
        assert judge(folder, server, monkeypatch) == 1
        assert len(server.requests) == 4 + client.TRIES_OF_REPLIES
    output = capsys.readouterr()
    assert "error: 1 of 6 answers are unjudged; run again" in output.err
    assert "[kv] without a verdict: 1 x no dictionaries with a score in the reply" in output.out
    mine = result(folder)
    assert mine["metrics"][f"{METRIC},none"] == 50.0
    assert mine["counts"] == {"samples": 3, "failed": 0, "judged": 2, "unjudged": 1}
    assert mine["difference_to_full"][METRIC]["samples"] == 2
    with serving([says(GOOD)], port=server.server_port) as server:
        assert judge(folder, server, monkeypatch) == 0
        assert ["Answer: green" in str(request["body"]) for request in server.requests] == [True]
    assert result(folder)["metrics"][f"{METRIC},none"] == pytest.approx(200 / 3)


def test_half_a_character_in_a_reply_is_kept_as_it_is(folder, monkeypatch, environment):
    with serving([says(GOOD + " \ud83d")]) as server:
        assert judge(folder, server, monkeypatch) == 0
    path = environment / "verdicts" / "verdicts.rank0.jsonl"
    assert {json.loads(line)["reply"] for line in path.read_text().splitlines()} == {GOOD + " \ud83d"}


def test_another_judge_model_is_asked_anew(folder, monkeypatch):
    with serving([says(GOOD)]) as server:
        judge(folder, server, monkeypatch)
        monkeypatch.setenv("GPT_EVAL_MODEL_NAME", "other")
        judge(folder, server, monkeypatch)
        assert len(server.requests) == 10


def test_many_requests_are_in_flight_but_no_more_than_allowed(tmp_path, monkeypatch):
    write_run(tmp_path / "out", "full", [f"answer {number}" for number in range(12)])
    now, most = [0], [0]

    def counting(handler):
        now[0] += 1
        most[0] = max(most[0], now[0])
        time.sleep(0.05)
        now[0] -= 1
        says(GOOD)(handler)

    with serving([counting]) as server:
        assert judge(tmp_path / "out", server, monkeypatch, concurrency=3) == 0
    assert 2 <= most[0] <= 3


def test_killed_it_loses_only_what_was_in_flight(tmp_path, monkeypatch, environment):
    write_run(tmp_path / "out", "full", [f"answer {number}" for number in range(12)])
    with serving([slow(0.1)]) as server:
        env = os.environ | {"OPENAI_API_URL": server.url, "KV_JUDGE_CONCURRENCY": "2"}
        line = [sys.executable, "-m", "lmms_eval_plugins.judge", str(tmp_path / "out"), "--yes"]
        process = subprocess.Popen(line, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 120
        while len(server.requests) < 7 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, process.stderr.read()
        asked = len(server.requests)
        process.stderr.close()
    kept = len(Verdicts(environment / "verdicts").load()._verdicts)
    assert 12 > asked >= 7
    assert kept >= asked - 2
    with serving([says(GOOD)], port=server.server_port) as server:
        assert judge(tmp_path / "out", server, monkeypatch) == 0
        assert len(server.requests) == 12 - kept
    assert result(tmp_path / "out", "full")["counts"]["judged"] == 12


def test_a_torn_last_line_counts_as_absent(folder, monkeypatch, environment):
    with serving([says(GOOD)]) as server:
        judge(folder, server, monkeypatch)
        path = environment / "verdicts" / "verdicts.rank0.jsonl"
        path.write_bytes(path.read_bytes()[:-20])
        assert judge(folder, server, monkeypatch) == 0
        assert len(server.requests) == 6
    assert all(json.loads(line) for line in path.read_text().splitlines() if line.endswith("}"))


def test_nothing_is_sent_before_it_is_confirmed(folder, monkeypatch, capsys):
    with serving([says(GOOD)]) as server:
        monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
        assert judge(folder, server, monkeypatch, yes=False) == 1
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert "confirm these requests with --yes" in lines[0]
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("builtins.input", lambda question: "")
        assert judge(folder, server, monkeypatch, yes=False) == 1
        assert server.requests == []
        monkeypatch.setattr("builtins.input", lambda question: "y")
        assert judge(folder, server, monkeypatch, yes=False) == 0
        assert len(server.requests) == 5


def test_an_outage_ends_the_step_and_keeps_what_was_judged(tmp_path, monkeypatch, capsys):
    write_run(tmp_path / "out", "full", [f"answer {number}" for number in range(30)])
    monkeypatch.setattr(client, "TRIES", 2)
    with serving([says(GOOD)] * 4 + [fails(503)]) as server:
        assert judge(tmp_path / "out", server, monkeypatch) == 1
        assert len(server.requests) == 4 + 2 * asking._MOST_FAILURES
    output = capsys.readouterr()
    (line,) = output.err.splitlines()
    assert "gave no verdict on 16 answers in a row, the last with: HTTP 503; once it does, run the same" in line
    assert "[kv] without a verdict: 16 x HTTP 503" in output.out
    assert result(tmp_path / "out", "full")["counts"] == {"samples": 30, "failed": 0, "judged": 4, "unjudged": 26}


def test_a_judge_that_answers_prose_ends_the_step_and_the_next_one_begins_with_what_was_not_asked(
    tmp_path, monkeypatch, capsys
):
    write_run(tmp_path / "out", "full", [f"answer {number}" for number in range(30)])
    with serving([says("I would say yes")]) as server:
        assert judge(tmp_path / "out", server, monkeypatch) == 1
        assert len(server.requests) == client.TRIES_OF_REPLIES * asking._MOST_FAILURES
    (line,) = capsys.readouterr().err.splitlines()
    assert "gave no verdict on 16 answers in a row, the last with: no dictionaries with a score in the reply" in line
    with serving([says(GOOD)], port=server.server_port) as server:
        assert judge(tmp_path / "out", server, monkeypatch) == 0
        first = server.requests[0]["body"]["messages"][0]["content"]
    assert "Predicted Answer: answer 16\n" in first


def test_a_judge_that_sends_requests_elsewhere_ends_the_step(folder, monkeypatch, capsys):
    with serving([says(GOOD)]) as other, serving([fails(307, Location=other.url)]) as server:
        assert judge(folder, server, monkeypatch) == 1
        assert (len(server.requests), len(other.requests)) == (1, 0)
    (line,) = capsys.readouterr().err.splitlines()
    assert "HTTP 307: it sends requests on to 127.0.0.1, and answers are sent nowhere but to OPENAI_API_URL" in line


def test_verdicts_of_one_server_are_not_those_of_another(folder, monkeypatch):
    with serving([says(GOOD)]) as one, serving([says(BAD)]) as other:
        assert judge(folder, one, monkeypatch) == 0
        assert judge(folder, other, monkeypatch) == 0
        assert len(other.requests) == 5
        assert result(folder)["metrics"][f"{METRIC},none"] == 0.0
        assert judge(folder, one, monkeypatch) == 0
        assert len(one.requests) == 5
    assert result(folder)["metrics"][f"{METRIC},none"] == 100.0


def test_a_key_that_is_refused_ends_the_step_with_one_line(folder, monkeypatch, capsys):
    with serving([fails(401, {"message": f"Incorrect API key provided: {KEY}"})]) as server:
        assert judge(folder, server, monkeypatch) == 1
        assert len(server.requests) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "HTTP 401: the key is not accepted" in line
    assert KEY not in line


def test_the_offline_rule_sends_nothing_and_says_what_it_is(folder, monkeypatch):
    monkeypatch.setenv("KV_JUDGE", "exact")
    with serving([says(GOOD)]) as server:
        assert judge(folder, server, monkeypatch) == 0
        assert server.requests == []
    mine = result(folder)
    assert mine["metrics"][f"{METRIC},none"] == pytest.approx(100 / 3)
    assert mine["judge"] == {"kind": "exact", "model": None, "prompt_version": "exact-1"}


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"KV_JUDGE": "none"}, "KV_JUDGE=none: nothing is judged"),
        ({"OPENAI_API_KEY": ""}, "OPENAI_API_KEY must be set to judge with a model; KV_JUDGE=exact"),
        ({"GPT_EVAL_MODEL_NAME": ""}, "GPT_EVAL_MODEL_NAME must be set"),
    ],
)
def test_what_cannot_be_judged_is_one_line(env, message, folder, monkeypatch, capsys):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RunStopped):
        judge(folder, None, monkeypatch)
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_folder_without_open_answers_is_an_error(tmp_path, monkeypatch, capsys):
    with pytest.raises(RunStopped):
        judge(tmp_path, None, monkeypatch)
    assert "no run in it has open answers" in capsys.readouterr().err
    with pytest.raises(RunStopped):
        judge(tmp_path / "nowhere", None, monkeypatch)
    assert "there is no such folder" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended by SIGTERM")])
def test_interrupted_it_keeps_what_was_judged(number, word, folder, monkeypatch, capfd):
    land, landed = asking._Round._land, []

    def interrupted(self):
        if len(landed) == 2:
            os.kill(os.getpid(), number)
        landed.append(land(self))

    monkeypatch.setattr(asking._Round, "_land", interrupted)
    with serving([says(GOOD)]) as server:
        assert judge(folder, server, monkeypatch) == 128 + number
    assert f"error: {word}; every verdict so far is on disk, and the same command goes on" in capfd.readouterr().err
    counts = [result(folder, label)["counts"]["judged"] for label in ("full", "tgv_kv-0.50")]
    assert 0 < sum(counts) < 6


def test_two_at_once_is_refused(folder, monkeypatch, environment, capsys):
    first = Verdicts(environment / "verdicts").open()
    try:
        with serving([says(GOOD)]) as server:
            assert judge(folder, server, monkeypatch) == 1
            assert server.requests == []
    finally:
        first.close()
    assert "is being written by another run" in capsys.readouterr().err

"""One answer and a server that misbehaves: the right verdict, or unjudged, within a bounded number of tries."""

import gzip
import json
import threading
import time
from email.utils import formatdate

import pytest

from lmms_eval_plugins.judge import client, prompt
from lmms_eval_plugins.judge.settings import JudgeSettings

from .stub_judge import (
    GOOD,
    MODEL,
    completion,
    cut_off,
    dribbled,
    endless,
    endless_error,
    fails,
    says,
    serving,
    slow,
    truncated,
)

KEY = "sk-very-secret-0123456789"
ENTRY = {"question": "What {colour} is it?", "answer": "red", "prediction": "It is {crimson}."}


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def settings(url):
    env = {"OPENAI_API_URL": url, "OPENAI_API_KEY": KEY, "GPT_EVAL_MODEL_NAME": "judge"}
    return JudgeSettings.from_env(env | {"KV_JUDGE_BACKOFF": "0.01", "KV_JUDGE_TIMEOUT": "0.3"})


def ask(url, entry=ENTRY):
    judge = settings(url)
    with client.client_for(judge) as connection:
        return client.ask(connection, judge, entry, threading.Event())


BAD_THEN_GOOD = {
    "429": fails(429),
    "500": fails(500),
    "503 that is no JSON": lambda handler: handler.send(503, b"<html>", {"Content-Type": "text/html"}),
    "timeout": slow(0.6),
    "dribbled body": dribbled(b""),
    "dribbled headers": dribbled(None),
    "without end": endless,
    "error without end": endless_error,
    "compressed": lambda handler: handler.send(200, gzip.compress(b"{}"), {"Content-Encoding": "gzip"}),
    "too deep": lambda handler: handler.send(200, b"[" * 100_000),
    "very long reply": says("x" * 20_000 + GOOD),
    "number of thousands of digits": says("{'score': 0x" + "f" * 5000 + "}"),
    "name of thousands of digits": says("{'score': 4, 'pred': 0x" + "f" * 5000 + "}"),
    "truncated JSON": truncated,
    "connection cut": cut_off,
    "truncated dictionary": says("{'pred': 'yes', 'sc"),
    "score outside the scale": says("{'pred': 'yes', 'score': 7}"),
    "negative score": says("{'pred': 'yes', 'score': -1}"),
    "score not a number": says("{'pred': 'yes', 'score': nan}"),
    "wrong type": says("{'pred': 'yes', 'score': [4]}"),
    "true is no score": says("{'pred': 'yes', 'score': True}"),
    "word": says("{'pred': 'yes', 'score': 'four'}"),
    "empty": says(""),
    "refused": says(None),
    "no dictionary": says("yes, 4"),
    "two verdicts": says("{'pred': 'yes', 'score': 4} or {'pred': 'no', 'score': 0}"),
    "no choices": lambda handler: handler.send(200, b'{"model": "m", "choices": []}'),
    "not a completion": lambda handler: handler.send(200, b"[]"),
}


@pytest.mark.parametrize("bad", BAD_THEN_GOOD.values(), ids=BAD_THEN_GOOD)
def test_a_bad_reply_is_asked_again_and_the_verdict_is_right(bad):
    with serving([bad, bad, says(GOOD)]) as server:
        record = ask(server.url)
    assert (record["status"], record["score"], record["pred"], record["tries"]) == ("judged", 4, "yes", 3)
    assert (record["model"], record["asked_model"], record["reply"]) == (MODEL, "judge", GOOD)
    assert record["prompt_version"] == prompt.VERSION
    assert len(server.requests) == 3


@pytest.mark.parametrize("bad", BAD_THEN_GOOD.values(), ids=BAD_THEN_GOOD)
def test_a_reply_that_stays_bad_ends_as_unjudged(bad):
    with serving([bad]) as server:
        record = ask(server.url)
    tries = client.TRIES_OF_REPLIES if record["served"] else client.TRIES
    assert (record["status"], record["tries"]) == ("unjudged", tries)
    assert record["error"]
    assert "score" not in record
    assert len(server.requests) == tries


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ('Sure! Here it is:\n```python\n{"pred": "yes", "score": 5}\n```', 5),
        ("{'pred': 'no', 'score': 2.5}", 2.5),
        ("{'pred': 'yes', 'score': '4'}", 4),
        ("{'pred': 'no', 'score': 0}", 0),
        ("{'pred': 'yes', 'score': 4} As I said: {'pred': 'yes', 'score': 4}", 4),
        ('{"pred": "yes", "score": 4, "sure": true}', 4),
    ],
)
def test_prose_around_the_dictionary_is_forgiven(reply, score):
    with serving([says(reply)]) as server:
        record = ask(server.url)
    assert (record["status"], record["score"], len(server.requests)) == ("judged", score, 1)


@pytest.mark.parametrize(
    ("wait", "least"), [(lambda: "0.4", 0.4), (lambda: formatdate(time.time() + 2.5, usegmt=True), 0.9)]
)
def test_the_wait_that_the_server_asks_for_is_honoured(wait, least):
    with serving([lambda handler: fails(429, Retry_After=wait())(handler), says(GOOD)]) as server:
        assert ask(server.url)["status"] == "judged"
    first, second = (request["time"] for request in server.requests)
    assert second - first >= least


def test_a_wait_of_an_hour_ends_the_tries():
    with serving([fails(429, Retry_After="3600")]) as server:
        record = ask(server.url)
    assert (record["status"], len(server.requests)) == ("unjudged", 1)
    assert "3600 s" in record["error"]


def test_a_request_that_the_server_calls_wrong_is_not_repeated_and_the_key_is_cut_from_its_message():
    with serving([fails(400, {"message": f"too long, {KEY}"})]) as server:
        record = ask(server.url)
    assert (record["status"], len(server.requests)) == ("unjudged", 1)
    assert "too long" in record["error"]
    assert KEY not in str(record)


@pytest.mark.parametrize(
    "reply", [fails(401), fails(403), fails(404), fails(429, {"code": "insufficient_quota", "message": "pay"})]
)
def test_a_door_that_is_closed_ends_all_requests(reply):
    with serving([reply]) as server, pytest.raises(client.JudgeClosed):
        ask(server.url)
    assert len(server.requests) == 1


def test_no_server_is_unjudged_and_one_that_starts_late_is_asked_again():
    with serving([says(GOOD)]) as server:
        url, port = server.url, server.server_port
    record = ask(url)
    assert (record["status"], record["tries"], record["served"]) == ("unjudged", client.TRIES, False)

    found = []
    judge = settings(url)
    slower = JudgeSettings(**{**vars(judge), "backoff": 0.2})
    with client.client_for(slower) as connection:
        thread = threading.Thread(target=lambda: found.append(client.ask(connection, slower, ENTRY, threading.Event())))
        thread.start()
        time.sleep(0.3)
        with serving([says(GOOD)], port=port):
            thread.join()
    assert found[0]["status"] == "judged"
    assert found[0]["tries"] > 1


@pytest.mark.parametrize("headers", [None, b""])
def test_a_server_that_sends_a_byte_now_and_then_holds_a_request_no_longer_than_the_timeout(headers):
    with serving([dribbled(headers)]) as server:
        started = time.monotonic()
        record = ask(server.url)
    assert time.monotonic() - started < 2 * client.TRIES * settings(server.url).timeout
    assert record["error"] == "no reply in time"


def test_a_redirect_is_not_followed_and_nothing_more_is_sent():
    with serving([says(GOOD)]) as other:
        for status in (301, 307, 308):
            reply = fails(status, Location=other.url)
            with serving([reply]) as server, pytest.raises(client.JudgeClosed, match="sends requests on to 127"):
                ask(server.url)
            assert len(server.requests) == 1
        assert other.requests == []


def test_what_the_server_says_of_itself_is_short_and_without_the_key():
    named = json.loads(completion(f"{GOOD} for {KEY}")) | {"model": f"{KEY} " + "x" * 1000}
    with serving([lambda handler: handler.send(200, json.dumps(named).encode())]) as server:
        record = ask(server.url)
    assert record["status"] == "judged"
    assert KEY not in str(record)
    assert record["reply"] == f"{GOOD} for ***"
    assert record["model"].startswith("*** xxx")
    assert len(record["model"]) < 100


def test_what_is_sent_is_the_stock_question():
    with serving([says(GOOD)]) as server:
        ask(server.url)
    (request,) = server.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["authorization"] == f"Bearer {KEY}"
    body = request["body"]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("judge", 0, 100)
    assert body["messages"] == prompt.messages(ENTRY)

"""Who judges, what is asked, and the offline rule."""

import importlib.util
from pathlib import Path

import lmms_eval
import pytest

from kv_caches import ConfigError
from lmms_eval_plugins.judge import exact, prompt, scoring
from lmms_eval_plugins.judge.settings import JudgeSettings

DOC = {"question": "Which shape?", "answer": "red circle", "video_id": "v1", "capability": "Plot Attribute"}


@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        ("It is a red circle.", "The red circle", True),
        ("RED, circle", "red circle", True),
        ("a redder circle", "red circle", False),
        ("a red square and a blue circle", "red circle", False),
        ("It is not a red circle.", "red circle", False),
        ("It isn\u2019t red", "red", False),
        ("No, it is red.", "red", True),
        ("It is not blue but red.", "red", True),
        ("It does not move", "not move", True),
        ("There are three.", "3", True),
        ("3.0 balls", "three balls", True),
        ("3 or 4", "3", False),
        ("13", "3", False),
        ("1,000 metres", "1000 metres", True),
        ("\u22125 degrees", "-5", True),
        ("5 degrees", "-5", False),
        ("from 10-12", "12", False),
        ("the 2nd", "2", False),
        ("at 5 seconds", "it appears at 5 seconds", False),
        ("no", "no", True),
        ("", "red", False),
        ("red", "", False),
    ],
)
def test_the_offline_rule(answer, reference, right):
    assert exact.is_right(answer, [reference]) is right


def test_any_accepted_answer_is_enough(monkeypatch):
    monkeypatch.setenv("KV_JUDGE", "exact")
    entry = scoring.process_results(DOC | {"answers": ["circle", "disc"]}, ["a disc"])[scoring.METRIC]
    assert (entry["score"], entry["judge"]) == (100.0, "exact")
    assert scoring.process_results(DOC, ["a disc"])[scoring.METRIC]["score"] == 0.0


def test_unjudged_answers_have_no_score_and_count_in_none(monkeypatch):
    monkeypatch.setenv("KV_JUDGE", "none")
    unjudged = scoring.process_results(DOC, ["red circle"])[scoring.METRIC]
    assert "score" not in unjudged
    right, wrong = unjudged | {"score": 100.0}, unjudged | {"score": 0.0}
    assert scoring.aggregate([unjudged, right, wrong, right]) == pytest.approx(200 / 3)
    assert scoring.counts([unjudged, right, wrong]) == {"judged": 2, "unjudged": 1}
    assert scoring.aggregate([unjudged]) is None


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1"),
        ("http://localhost:8000/v1/", "http://localhost:8000/v1"),
        ("http://localhost:8000", "http://localhost:8000/v1"),
        ("https://api.deepseek.com/chat/completions", "https://api.deepseek.com"),
        ("http://[::1]:8000/api/v3/chat/completions/", "http://[::1]:8000/api/v3"),
    ],
)
def test_full_addresses_and_bases_are_taken(url, base):
    assert JudgeSettings.from_env({"OPENAI_API_URL": url}).base_url == base


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"KV_JUDGE": "exakt"}, "KV_JUDGE=exakt is unknown; allowed: api, exact, none. Did you mean"),
        ({"KV_JUDGE_CONCURRENCY": "0"}, "KV_JUDGE_CONCURRENCY=0: a whole number from 1 to 256 is needed"),
        ({"KV_JUDGE_TIMEOUT": "soon"}, "KV_JUDGE_TIMEOUT=soon: a number of seconds"),
        ({"OPENAI_API_URL": "localhost:8000"}, "OPENAI_API_URL=localhost:8000 is no address of a server"),
    ],
)
def test_a_wrong_value_is_one_clear_line(env, message):
    with pytest.raises(ConfigError) as error:
        JudgeSettings.from_env(env)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_key_in_an_address_is_not_repeated():
    with pytest.raises(ConfigError) as error:
        JudgeSettings.from_env({"OPENAI_API_URL": "ftp://user:sk-secret@host/?key=sk-secret"})
    assert "sk-secret" not in str(error.value)
    assert "sk-secret" not in repr(JudgeSettings.from_env({"OPENAI_API_KEY": "sk-secret"}))


def test_what_lacks_is_named_and_a_server_of_ones_own_needs_no_key():
    assert JudgeSettings.from_env({}).missing == ["OPENAI_API_KEY", "GPT_EVAL_MODEL_NAME"]
    own = {"OPENAI_API_URL": "http://localhost:8000/v1", "GPT_EVAL_MODEL_NAME": "m"}
    assert JudgeSettings.from_env(own).missing == []
    assert JudgeSettings.from_env({"KV_JUDGE": "exact"}).missing == []


def test_the_question_is_that_of_the_stock_task(monkeypatch):
    path = Path(lmms_eval.__file__).parent / "tasks" / "video-tt" / "gpt_utils.py"
    spec = importlib.util.spec_from_file_location("stock_gpt_utils", path)
    stock = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stock)
    sent = []

    def post(url, headers, json, timeout):
        sent.append(json)
        raise stock.requests.exceptions.ConnectionError

    monkeypatch.setattr(stock.requests, "post", post)
    monkeypatch.delenv("GPT_EVAL_PROMPT", raising=False)
    entry = {"question": "How {many}?", "answer": "3 {x}", "prediction": "{'score': 5}"}
    stock.get_eval(entry["question"], entry["answer"], entry["prediction"], prompt.MAX_TOKENS)
    assert sent[0]["messages"] == prompt.messages(entry)
    assert (sent[0]["temperature"], sent[0]["max_tokens"]) == (prompt.TEMPERATURE, prompt.MAX_TOKENS)

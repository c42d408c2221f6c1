"""What stands beside a score is of its very samples, and what was asked otherwise is not compared with it."""

import pytest

from lmms_eval_plugins import figures, results
from lmms_eval_plugins.outputs import PROMPT
from lmms_eval_plugins.store import Key

METRICS = {"accuracy,none": 0.5, "accuracy_stderr,none": 0.1, "rating,none": 3.0}


def key(doc, prompt="p", task="t", repeat=0):
    return Key(task, doc, repeat, f"{prompt}{doc}")


def record(share, tokens=3, status="ok"):
    proof = {"retention_achieved": share, "prompt_tokens": 10, "kv_bytes_full": 100, "kv_bytes_kept": 100 * share}
    return {"status": status, "answer_tokens": tokens, "eviction": proof}


def test_figures_are_of_the_samples_that_were_asked_for_and_of_no_other():
    records = {key(0): record(0.1), key(1): record(0.3, tokens=1), key(2): record(0.9), key(0, "q"): record(0.9)}
    found = figures.by_task([key(0), key(1)], [], records)["t"]
    assert found["counts"] == {"samples": 2, "failed": 0, "single_token_answers": 1}
    assert found["retention"] == pytest.approx({"mean": 0.2, "min": 0.1, "max": 0.3})
    assert found["means"] == pytest.approx(
        {"answer_tokens": 2, "prompt_tokens": 10, "kv_bytes_full": 100, "kv_bytes_kept": 20}
    )
    assert found["prompts"] == {"0": "p0", "1": "p1"}
    assert figures.by_task([key(0), key(0, repeat=1)], [], records)["t"]["prompts"] == {"0": "p0 p0"}


def test_a_failed_sample_is_counted_and_not_among_what_was_scored():
    records = {key(0): record(0.1), key(1): record(0.3, status="failed")}
    found = figures.by_task([key(0), key(1)], [key(1)], records)["t"]
    assert (found["counts"]["samples"], found["counts"]["failed"]) == (2, 1)
    assert found["prompts"] == {"0": "p0"}


def test_records_of_another_machine_are_said_to_be_missing():
    asked = [key(doc) for doc in range(3)] + [key(0, task="whole")]
    found = figures.by_task(asked, [], {key(1): record(0.1), key(0, task="whole"): record(0.1)})
    assert found["t"]["counts"] == {"samples": 3, "failed": 0, "single_token_answers": 0, "records_missing": 2}
    assert set(found["t"]["means"].values()) == set(found["t"]["retention"].values()) == {None}
    assert found["whole"]["means"]["answer_tokens"] == 3
    assert figures.missing_records(found, "FOLDER").startswith("records of 2 of 3 samples of t are not in FOLDER, so ")
    assert figures.missing_records({"whole": found["whole"]}, "FOLDER") == ""


def samples(docs, prompt="p", value=lambda doc: 1):
    return [{"doc_id": doc, PROMPT: f"{prompt}{doc}", "accuracy": value(doc), "rating": {"s": 3}} for doc in docs]


def test_only_samples_that_were_asked_the_same_are_compared():
    full = samples(range(1, 4), value=lambda doc: doc % 2)
    found = results.compare(METRICS, samples(range(3)), full)
    assert set(found) == {"accuracy"}
    assert (found["accuracy"]["samples"], found["accuracy"]["mean"]) == (2, 0.5)
    one = samples([1, 2])
    one[0][PROMPT] = "other"
    assert results.compare(METRICS, one, full)["accuracy"]["samples"] == 1


@pytest.mark.parametrize(
    ("full", "why"),
    [
        (None, "the full cache has no scores"),
        (samples(range(3, 6)), "the full cache was asked other samples"),
        (samples(range(3), prompt="q"), "the full cache was asked other prompts"),
        ([sample | {PROMPT: None} for sample in samples(range(3))], "the full cache was asked other prompts"),
    ],
)
def test_without_a_sample_in_common_there_is_no_difference_but_a_reason(full, why):
    assert results.compare(METRICS, samples(range(3)), full) == why


def test_a_result_says_the_mean_of_its_samples_where_its_metric_is_one():
    mine = samples(range(4), value=lambda doc: doc % 2)
    assert results.compare(METRICS, mine, samples(range(4)))["accuracy"]["score"] == 0.5
    assert "score" not in results.compare(METRICS | {"accuracy,none": 50.0}, mine, samples(range(4)))["accuracy"]

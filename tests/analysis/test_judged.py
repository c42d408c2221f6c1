"""Open answers in tables: who judged, how many, and no comparison with the paper where no model judged."""

import json

import pytest

from analysis.errors import ResultsError
from analysis.runs import load
from analysis.table import main
from lmms_eval_plugins.judge import __main__ as command
from lmms_eval_plugins.judge import rescore, runs
from lmms_eval_plugins.judge.scoring import METRIC
from lmms_eval_plugins.judge.settings import JudgeSettings
from lmms_eval_plugins.outputs import PROMPT

TASK = "videott_no_leading_oe"
RUN = {
    "schema": 1,
    "task": TASK,
    "model": "tiny",
    "revision": "main",
    "wrapper": "chat",
    "dtype": "float32",
    "image_max_tokens": None,
    "vision_aspect_ratio": None,
    "attn_implementation": "sdpa",
    "lmms_eval_model": "qwen3_vl",
    "device": "cpu",
    "lmms_eval_date": "1",
    "max_new_tokens": 1500,
    "means": {"answer_tokens": 5.0, "kv_bytes_kept": 10, "kv_bytes_full": 20},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The full cache and TGV-KV, two answers each, unjudged."""
    monkeypatch.setenv("KV_JUDGE", "exact")
    for method, retention in (("full", 1.0), ("tgv_kv", 0.5)):
        run = tmp_path / method
        (run / "model").mkdir(parents=True)
        metrics = {f"{METRIC},none": None, f"{METRIC}_stderr,none": "N/A"}
        (run / "model" / "1_results.json").write_text(json.dumps({"results": {TASK: metrics}}))
        entries = [{"question": "?", "answer": "red", "prediction": text, "judge": "none"} for text in ("red", "blue")]
        lines = [
            json.dumps({"doc_id": number, PROMPT: str(number), METRIC: entry}) for number, entry in enumerate(entries)
        ]
        (run / "model" / f"1_samples_{TASK}.jsonl").write_text("\n".join(lines))
        config = {"method": method, "variant": "paper", "decode": "append", "retention": retention, "model_type": None}
        counts = {"samples": 2, "failed": 0, "single_token_answers": 0}
        content = RUN | {"fingerprint": method, "config": config, "metrics": metrics, "counts": counts}
        content["retention"] = {"mean": retention}
        (run / f"result.{TASK}.json").write_text(json.dumps(content))
    rescore.judge(runs.find(tmp_path), JudgeSettings("none"))
    return tmp_path


def test_unjudged_answers_are_refused_and_never_a_zero(folder, capsys):
    with pytest.raises(ResultsError, match=r"2 answers are unjudged; run python -m lmms_eval_plugins.judge"):
        load(folder)
    assert main([str(folder)]) == 2
    assert "2 answers are unjudged" in capsys.readouterr().err


def test_the_offline_judge_is_said_in_the_table(folder, capsys):
    assert command.main([str(folder)]) == 0
    assert main([str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "4 of 4 open answers are judged by the offline rule exact-1. NOT comparable to the paper." in shown
    assert "NOT comparable to the paper" in (folder / "table.md").read_text()
    scores = load(folder).scores
    assert (scores["score"] == 50.0).all()
    assert (scores["unjudged"] == 0).all()

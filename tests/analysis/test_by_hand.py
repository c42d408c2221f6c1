"""Runs of `python -m lmms_eval` without a sweep, several in one folder."""

import json

import pytest

from analysis import efficiency
from analysis.runs import ResultsError, load
from analysis.table import main, score_table

from .test_table import TEMPLATE, rewrite, write


def write_by_hand(folder, fingerprint, score, tasks=("mini_scene",), **config):
    """As `python -m lmms_eval` does: scores in the folder of the model, records elsewhere."""
    known, store = json.loads(TEMPLATE.read_text()), folder / "records" / fingerprint
    store.mkdir(parents=True, exist_ok=True)
    full = {"method": "full", "variant": "paper", "decode": "append", "retention": 1.0}
    config = known["config"] | full | config
    (store / "config.json").write_text(json.dumps(known | {"fingerprint": fingerprint, "config": config}))
    record = {"schema": 2, "fingerprint": fingerprint, "doc_id": 0, "repeat": 0, "status": "ok", "time": 1}
    record |= {"prompt_hash": "h"}
    record |= {"answer": "a", "answer_tokens": 1, "seconds": 0.1, "timing": "own"}
    share = config["retention"]
    record["eviction"] = {"retention_achieved": share, "kv_bytes_kept": 2048 * share, "kv_bytes_full": 2048}
    with (store / "records.rank0.jsonl").open("a") as file:
        file.writelines(json.dumps(record | {"task": task}) + "\n" for task in tasks)
    scores = folder / "run" / "model"
    scores.mkdir(parents=True, exist_ok=True)
    date = f"{len(list(scores.iterdir()))}"
    content = {"config": {"model_args": f"pretrained=model,kv_fingerprint={fingerprint}"}, "date": date}
    content["results"] = {task: {"exact_match,none": score} for task in tasks}
    (scores / f"{date}_results.json").write_text(json.dumps(content))


def test_all_configurations_that_were_run_by_hand_into_one_folder_are_shown(tmp_path):
    tgv = {"method": "tgv_kv", "retention": 0.1}
    write_by_hand(tmp_path, "v1-0", 0.8)
    write_by_hand(tmp_path, "v1-1", 0.2, **tgv)
    write_by_hand(tmp_path, "v1-1", 0.4, **tgv)
    write_by_hand(tmp_path, "v1-1", 0.3, ("mini_chart",), **tgv)
    assert main([str(tmp_path / "run")]) == 0
    table = score_table(load(tmp_path / "run").scores).set_index("method")
    assert table["scene"].to_dict() == {"full": "80.0 (100 %)", "tgv_kv": "40.0 (50 %)"}
    assert table["chart"].to_dict() == {"full": "not run", "tgv_kv": "30.0 (no full cache)"}
    write_by_hand(tmp_path, "v1-2", 0.5, **tgv)
    table = score_table(load(tmp_path / "run").scores)
    assert set(zip(table["model"].str[-6:], table["method"], table["scene"])) == {
        ("[v1-0]", "full", "80.0 (100 %)"),
        ("[v1-1]", "tgv_kv", "40.0 (50 %)"),
        ("[v1-2]", "tgv_kv", "50.0 (62 %)"),
    }


def told(docs, share, prompt="h"):
    """What a run by hand writes beside its scores."""
    return {
        "counts": {"samples": len(docs), "failed": 0, "single_token_answers": 0},
        "retention": {"mean": share},
        "means": {"answer_tokens": 7, "kv_bytes_kept": 2048 * share, "kv_bytes_full": 2048},
        "prompts": {str(doc): prompt for doc in docs},
    }


def test_a_run_by_hand_says_the_figures_of_its_own_samples_whatever_its_store_holds(tmp_path):
    write_by_hand(tmp_path, "v1-0", 0.8)
    write_by_hand(tmp_path, "v1-1", 0.4, method="tgv_kv", retention=0.1)
    for number, share, docs in ((0, 1.0, range(8)), (1, 0.3, range(8))):
        kv = {"fingerprint": f"v1-{number}", "records": "", "tasks": {"mini_scene": told(docs, share)}}
        rewrite(tmp_path / "run" / "model" / f"{number}_results.json", kv=kv)
    scores = load(tmp_path / "run").scores
    assert scores["samples"].tolist() == [8, 8]
    assert scores["achieved"].tolist() == [1.0, 0.3]
    assert scores["answer_tokens"].tolist() == [7, 7]
    assert score_table(scores)["scene"].tolist() == ["80.0 (100 %)", "40.0 (50 %)"]


@pytest.mark.parametrize(
    ("docs", "prompt", "why"),
    [(range(7), "h", "other samples"), (range(1, 9), "h", "other samples"), (range(8), "g", "other prompts")],
)
def test_what_was_asked_otherwise_has_no_share(tmp_path, docs, prompt, why):
    write_by_hand(tmp_path, "v1-0", 0.8)
    write_by_hand(tmp_path, "v1-1", 0.6, method="tgv_kv", retention=0.1)
    for number, figures in ((0, told(range(8), 1.0)), (1, told(docs, 0.1, prompt))):
        kv = {"fingerprint": f"v1-{number}", "records": "", "tasks": {"mini_scene": figures}}
        rewrite(tmp_path / "run" / "model" / f"{number}_results.json", kv=kv)
    assert score_table(load(tmp_path / "run").scores)["scene"].tolist() == [
        "80.0 (100 %)",
        f"60.0 (full cache: {why})",
    ]


def test_a_run_of_before_whose_records_are_of_other_samples_too_is_refused(tmp_path):
    write_by_hand(tmp_path, "v1-0", 0.8)
    rewrite(tmp_path / "run" / "model" / "0_results.json", **{"n-samples": {"mini_scene": {"effective": 8}}})
    with pytest.raises(
        ResultsError, match=r"0_results\.json: 8 samples of mini_scene were asked, but its records are of 1"
    ):
        load(tmp_path / "run")


def test_records_are_found_where_the_results_say(tmp_path):
    """As the quick start of the paper's repository leaves them: `--output_path ./logs/`, records in results/runs."""
    write_by_hand(tmp_path / "clone" / "logs", "v1-0", 0.8)
    (tmp_path / "clone" / "logs" / "run").rename(tmp_path / "clone" / "scores")
    (tmp_path / "clone" / "logs" / "records").rename(tmp_path / "clone" / "runs")
    scores = tmp_path / "clone" / "scores" / "model" / "0_results.json"
    with pytest.raises(ResultsError, match=r"0_results\.json: its per-sample records are neither in .*copy v1-0 there"):
        load(tmp_path / "clone" / "scores")
    rewrite(scores, kv={"fingerprint": "v1-0", "records": "../../runs/v1-0"})
    (tmp_path / "clone").rename(tmp_path / "moved")
    found = load(tmp_path / "moved" / "scores")
    assert found.scores["score"].tolist() == [0.8]
    assert not efficiency.seconds_per_answer(found.scores).isna().any()
    (tmp_path / "moved" / "runs").rename(tmp_path / "lost")
    with pytest.raises(ResultsError, match=r"neither .*moved/runs/v1-0 nor in .*scores"):
        load(tmp_path / "moved" / "scores")


def test_answers_for_a_task_s_own_server_are_no_results(tmp_path):
    write_by_hand(tmp_path, "v1-0", 0.8)
    write_by_hand(tmp_path, "v1-1", 0.4, method="tgv_kv", retention=0.1)
    (tmp_path / "run" / "submissions").mkdir()
    for name in ("textcaps_captions_val2014_alg_results.json", "coco_captions_val2014_alg_results.json"):
        (tmp_path / "run" / "submissions" / name).write_text('[{"image_id": 1, "caption": "a dog"}]')
    assert main([str(tmp_path / "run")]) == 0
    assert load(tmp_path / "run").scores["score"].tolist() == [0.8, 0.4]


def test_the_model_as_it_is_without_a_setting_stands_beside_its_evicted_cache(tmp_path):
    write_by_hand(tmp_path, "v1-0", 0.8)
    write_by_hand(tmp_path, "v1-1", 0.4, method="tgv_kv", retention=0.1, model_type="tiny-vlm")
    rewrite(tmp_path / "records" / "v1-0" / "config.json", config=None, row="tiny-vlm")
    scores = load(tmp_path / "run").scores
    assert dict(zip(scores["name"], scores["model"])) == {"stock": "tiny-vlm", "tgv_kv": "tiny-vlm"}


def test_a_sweep_beside_runs_by_hand_is_shown_too(tmp_path):
    write_by_hand(tmp_path, "v1-0", 0.8)
    write(tmp_path / "run", "tgv", 0.4, method="tgv_kv", retention=0.1)
    assert set(load(tmp_path / "run").scores["method"]) == {"full", "tgv_kv"}

"""The table of a results folder: every configuration has a row of its own, failures stop it."""

import json
import shutil
from pathlib import Path

import pytest

from analysis import efficiency, report, tables
from analysis.report_records import configurations
from analysis.runs import ResultsError, load
from analysis.table import main, score_table

TEMPLATE = Path(__file__).parent / "fixture" / "llava" / "full" / "result.chartqa.json"


def write(folder, run, score, failed=0, **config):
    known = {"method": "full", "variant": "paper", "decode": "append", "retention": 1.0} | config
    base = json.loads(TEMPLATE.read_text())
    content = base | {
        "config": base["config"] | known,
        "task": "mini_scene",
        "counts": {"samples": 10, "failed": failed, "single_token_answers": 0},
        "means": base["means"] | {"answer_tokens": 4.0, "kv_bytes_kept": 2048 * known["retention"]},
        "retention": {"mean": known["retention"]},
        "metrics": {"alias": "mini_scene", "exact_match,none": score, "exact_match_stderr,none": 0.01},
    }
    (folder / run).mkdir()
    (folder / run / "result.mini_scene.json").write_text(json.dumps(content))


def test_configurations_that_differ_in_decoding_only_have_rows_of_their_own(tmp_path):
    write(tmp_path, "full", 0.8)
    official = {"method": "tgv_kv", "variant": "official", "retention": 0.1}
    write(tmp_path, "a", 0.4, **official)
    write(tmp_path, "b", 0.2, decode="evict", **official)
    table = score_table(load(tmp_path).scores).set_index("method")
    assert table["scene"].to_dict() == {
        "full": "80.0 (100 %)",
        "tgv_kv (official)": "40.0 (50 %)",
        "tgv_kv (official, evict)": "20.0 (25 %)",
    }
    assert set(table["kept"]) == {"100.00 %", "10.00 %"}


def test_what_a_run_does_not_say_is_a_dash(tmp_path, capsys):
    for run, config in (("full", {}), ("tgv", {"method": "tgv_kv", "retention": 0.1})):
        write(tmp_path, run, 0.8, **config)
        path = tmp_path / run / "result.mini_scene.json"
        content = json.loads(path.read_text())
        content["means"] |= dict.fromkeys(("answer_tokens", "kv_bytes_kept", "kv_bytes_full"))
        path.write_text(json.dumps(content))
    assert main([str(tmp_path)]) == 0
    assert "- tokens per answer" in (tmp_path / "table.md").read_text()
    assert set(score_table(load(tmp_path).scores)["KV / sample"]) == {"-"}
    (_, shown, _, _), *_ = efficiency.tables(load(tmp_path))
    assert shown[["KV full", "KV kept", "tokens / answer"]].to_numpy().tolist() == [["-"] * 3] * 2
    content["retention"]["mean"] = None
    path.write_text(json.dumps(content))
    table = score_table(load(tmp_path).scores).set_index("method")
    assert table["kept"].to_dict() == {"full": "100.00 %", "tgv_kv": "-"}
    kept = [row[2]["text"] for row in configurations(load(tmp_path))[0]["rows"]]
    assert sorted(kept) == ["-", "100.00 %"]
    assert "nan" not in capsys.readouterr().out


def test_a_run_with_failed_samples_is_refused_unless_allowed(tmp_path, capsys):
    write(tmp_path, "full", 0.8, failed=2)
    assert main([str(tmp_path)]) == 2
    assert "2 samples failed" in capsys.readouterr().err
    assert main([str(tmp_path), "--allow-failures"]) == 0


def write_failed(folder, run, failed, **config):
    """As the sweep does: no result file."""
    known = json.loads(TEMPLATE.read_text())
    (folder / run).mkdir()
    tasks = {"mini_scene": {"samples": 2, "failed": failed, "reason": "OSError: no picture" if failed else None}}
    content = {"schema": 1, "model": known["model"], "config": known["config"] | config, "tasks": tasks}
    (folder / run / "failed.json").write_text(json.dumps(content))


def test_a_configuration_that_failed_is_refused_by_name_or_shown(tmp_path, capsys):
    write(tmp_path, "full", 0.8)
    for share in (0.5, 0.05):
        write_failed(tmp_path, f"fastv-{share}", 2, method="fastv", retention=share)
    said = "fastv 5 %: 2 of 2 samples of mini_scene failed: OSError: no picture"
    for command in (main, tables.main, report.main):
        assert command([str(tmp_path)]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert "--allow-failures" in error
        assert command([str(tmp_path), "--allow-failures"]) == 0
        assert said in capsys.readouterr().err
    text = (tmp_path / "table.md").read_text()
    assert "No score: fastv 5 % on scene (failed 2); fastv 50 % on scene (failed 2)." in text
    assert said in (tmp_path / "report.html").read_text()


def test_a_folder_with_failed_runs_only_says_so(tmp_path, capsys):
    write_failed(tmp_path, "fastv-0.95", 2, method="fastv", retention=0.05)
    assert main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "no finished run in here, but: fastv 5 %: 2 of 2 samples of mini_scene failed: OSError" in error
    assert "quickstart" not in error


@pytest.mark.parametrize("place", [".", "records", "../records", ".."])
def test_a_run_by_hand_that_did_not_end_is_said(place, tmp_path, capsys):
    source = next((TEMPLATE.parents[1] / "records").glob("*/config.json")).parent
    run = tmp_path / "run"
    run.mkdir()
    shutil.copytree(source, run / place / source.name)
    assert main([str(run)]) == 2
    said = "random_text_first (plain) 5 %: 3 of 4 samples of chartqa failed: OutOfMemoryError: no room"
    assert f"{run}: no finished run in here, but: {said}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 9}', '{"schema": 1}', '{"schema": 1, "tasks": {"a": 1}}'])
def test_a_damaged_file_of_failures_is_refused_by_name(text, tmp_path, capsys):
    write(tmp_path, "full", 0.8)
    path = tmp_path / "full" / "failed.json"
    path.write_text(text)
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {path}: ")


def write_by_hand(folder, fingerprint, score, tasks=("mini_scene",), **config):
    """As `python -m lmms_eval` does: scores in the folder of the model, records elsewhere."""
    known, store = json.loads(TEMPLATE.read_text()), folder / "records" / fingerprint
    store.mkdir(parents=True, exist_ok=True)
    full = {"method": "full", "variant": "paper", "decode": "append", "retention": 1.0}
    config = known["config"] | full | config
    (store / "config.json").write_text(json.dumps(known | {"fingerprint": fingerprint, "config": config}))
    record = {"schema": 2, "fingerprint": fingerprint, "doc_id": 0, "repeat": 0, "status": "ok", "time": 1}
    record |= {"answer": "a", "answer_tokens": 1, "seconds": 0.1}
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
    with pytest.raises(ResultsError, match=r"3_results\.json: fingerprint v1-1 is not that of .*4_results\.json, v1-2"):
        load(tmp_path / "run")


def test_a_run_by_hand_counts_its_own_samples_not_those_of_its_store(tmp_path):
    write_by_hand(tmp_path, "v1-0", 0.8)
    write_by_hand(tmp_path, "v1-1", 0.4, method="tgv_kv", retention=0.1)
    rewrite(tmp_path / "run" / "model" / "1_results.json", **{"n-samples": {"mini_scene": {"effective": 8}}})
    scores = load(tmp_path / "run").scores
    assert scores["samples"].tolist() == [1, 8]
    assert scores["no_share"].tolist() == ["", "full cache: other samples"]


def rewrite(path, **more):
    path.write_text(json.dumps(json.loads(path.read_text()) | more))


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({"full_fingerprint": "v1-0"}, "40.0 (50 %)"),
        ({"full_fingerprint": "v1-1"}, "40.0 (full cache: other code or arguments)"),
        ({}, "40.0 (full cache: other code or arguments)"),
        ({"full_fingerprint": "v1-1", "wrapper": "simple"}, "40.0 (full cache: other wrapper)"),
    ],
)
def test_a_score_is_divided_by_the_full_cache_of_the_same_code_only(more, shown, tmp_path):
    write(tmp_path, "full", 0.8)
    write(tmp_path, "tgv", 0.4, method="tgv_kv", retention=0.1)
    rewrite(tmp_path / "full" / "result.mini_scene.json", fingerprint="v1-0", full_fingerprint="v1-0")
    rewrite(tmp_path / "tgv" / "result.mini_scene.json", fingerprint="v1-2", **more)
    table = score_table(load(tmp_path).scores).set_index("method")
    assert table["scene"].to_dict() == {"full": "80.0 (100 %)", "tgv_kv": shown}


def test_of_several_full_caches_the_one_that_ran_alike_counts(tmp_path):
    for number, score in enumerate((0.8, 0.5)):
        write(tmp_path, f"full{number}", score)
        own = {"fingerprint": f"v1-{number}", "full_fingerprint": f"v1-{number}", "lmms_eval_date": str(number)}
        rewrite(tmp_path / f"full{number}" / "result.mini_scene.json", **own)
    write(tmp_path, "tgv", 0.4, method="tgv_kv", retention=0.1)
    rewrite(tmp_path / "tgv" / "result.mini_scene.json", fingerprint="v1-2", full_fingerprint="v1-0")
    table = score_table(load(tmp_path).scores).set_index("method")
    assert table["scene"].to_dict() == {"full": "50.0 (100 %)", "tgv_kv": "40.0 (50 %)"}


def test_a_score_without_a_share_says_why(tmp_path):
    write(tmp_path, "tgv", 0.4, method="tgv_kv", retention=0.1)
    assert score_table(load(tmp_path).scores)["scene"].tolist() == ["40.0 (no full cache)"]
    write(tmp_path, "full", 0.0)
    shown = score_table(load(tmp_path).scores)["scene"].tolist()
    assert shown == ["0.0 (full cache: 0)", "40.0 (full cache: 0)"]


def test_a_sweep_beside_runs_by_hand_is_shown_too(tmp_path):
    write_by_hand(tmp_path, "v1-0", 0.8)
    write(tmp_path / "run", "tgv", 0.4, method="tgv_kv", retention=0.1)
    assert set(load(tmp_path / "run").scores["method"]) == {"full", "tgv_kv"}


def test_an_empty_folder_says_what_to_run(tmp_path):
    with pytest.raises(ResultsError, match=r"bash scripts/quickstart\.sh"):
        load(tmp_path)


def test_scores_in_points_are_shown_as_they_are(tmp_path):
    write(tmp_path, "a", 750.0, method="tgv_kv", retention=0.5)
    write(tmp_path, "full", 1500.0)
    assert score_table(load(tmp_path).scores)["scene"].tolist() == ["1500.0 (100 %)", "750.0 (50 %)"]

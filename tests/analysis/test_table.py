"""The table of a results folder: every configuration has a row of its own, failures stop it."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from analysis import efficiency
from analysis.report import page
from analysis.report_records import configurations
from analysis.runs import ResultsError, load
from analysis.table import main, overview, score_table
from analysis.tables import main as main_of_tables
from analysis.units import measures_of

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({"prompts": {"0": "a"}}, "40.0 (50 %)"),
        ({"prompts": {"0": "b"}}, "40.0 (full cache: other prompts)"),
        ({"prompts": {"1": "a"}}, "40.0 (full cache: other samples)"),
        ({"prompts": None, "schema": 1}, "40.0 (full cache: prompts not noted, run again)"),
    ],
)
def test_a_score_is_divided_by_the_full_cache_of_the_same_prompts_only(more, shown, tmp_path):
    write(tmp_path, "full", 0.8)
    write(tmp_path, "tgv", 0.4, method="tgv_kv", retention=0.1)
    rewrite(tmp_path / "full" / "result.mini_scene.json", prompts={"0": "a"})
    rewrite(tmp_path / "tgv" / "result.mini_scene.json", **more)
    table = score_table(load(tmp_path).scores).set_index("method")
    assert table["scene"].to_dict() == {"full": "80.0 (100 %)", "tgv_kv": shown}


def test_records_that_are_missing_are_said(tmp_path, capsys):
    write(tmp_path, "full", 0.8)
    path = tmp_path / "full" / "result.mini_scene.json"
    counts = {"samples": 10, "failed": 0, "single_token_answers": 0, "records_missing": 4}
    rewrite(path, counts=counts, retention={"mean": None})
    assert main([str(tmp_path)]) == 2
    assert f"{path}: records of 4 of 10 samples are not beside the others" in capsys.readouterr().err
    assert main([str(tmp_path), "--allow-failures"]) == 0
    assert score_table(load(tmp_path, allow_failures=True).scores)["kept"].tolist() == ["-"]


def test_of_several_full_caches_the_one_that_ran_alike_counts(tmp_path):
    for number, score in enumerate((0.8, 0.5)):
        write(tmp_path, f"full{number}", score)
        own = {"fingerprint": f"v1-{number}", "full_fingerprint": f"v1-{number}", "lmms_eval_date": str(number)}
        rewrite(tmp_path / f"full{number}" / "result.mini_scene.json", **own)
    write(tmp_path, "tgv", 0.4, method="tgv_kv", retention=0.1)
    rewrite(tmp_path / "tgv" / "result.mini_scene.json", fingerprint="v1-2", full_fingerprint="v1-0")
    table = score_table(load(tmp_path).scores)
    assert table[["model", "method", "scene"]].to_numpy().tolist() == [
        ["llava-7B [v1-0]", "full", "80.0 (100 %)"],
        ["llava-7B [v1-0]", "tgv_kv", "40.0 (50 %)"],
        ["llava-7B [v1-1]", "full", "50.0 (100 %)"],
    ]


def test_a_score_without_a_share_says_why(tmp_path):
    write(tmp_path, "tgv", 0.4, method="tgv_kv", retention=0.1)
    assert score_table(load(tmp_path).scores)["scene"].tolist() == ["40.0 (no full cache)"]
    write(tmp_path, "full", 0.0)
    shown = score_table(load(tmp_path).scores)["scene"].tolist()
    assert shown == ["0.0 (full cache: 0)", "40.0 (full cache: 0)"]


def test_an_empty_folder_says_what_to_run(tmp_path):
    with pytest.raises(ResultsError, match=r"bash scripts/quickstart\.sh"):
        load(tmp_path)


def test_scores_in_points_are_shown_as_they_are(tmp_path):
    write(tmp_path, "a", 750.0, method="tgv_kv", retention=0.5)
    write(tmp_path, "full", 1500.0)
    assert score_table(load(tmp_path).scores)["scene"].tolist() == ["1500.0 (100 %)", "750.0 (50 %)"]


@pytest.mark.parametrize(
    ("task", "metric", "score", "shown", "said"),
    [
        ("chartqa", "relaxed_overall", 1 / 3, "33.3", "ChartQA: relaxed accuracy in %"),
        ("textcaps_val", "textcaps_CIDEr", 1.0416, "104.2", "TextCaps: CIDEr times 100"),
        (
            "videott_no_leading_oe",
            "videott_open_ended_score",
            1.5,
            "1.5",
            "Video-TT primary: answers judged right in %",
        ),
        ("mme", "mme_perception_score", 1500.0, "1500.0", "mme: mme perception score in points"),
    ],
)
def test_every_table_says_which_metric_in_which_unit(task, metric, score, shown, said, tmp_path):
    write(tmp_path, "full", 1)
    path = tmp_path / "full" / "result.mini_scene.json"
    rewrite(path, task=task, metrics={f"{metric},none": score, f"{metric}_stderr,none": 0.01})
    results = load(tmp_path)
    assert overview(results, tmp_path).splitlines()[2].split()[-3:] == [shown, "(100", "%)"]
    assert f" in brackets: {said}. 10 samples" in (tmp_path / "table.md").read_text()
    assert said in page(results, "title")
    write(tmp_path, "tgv", 0.5, method="tgv_kv", retention=0.1)
    (tmp_path / "tgv" / "result.mini_scene.json").rename(tmp_path / "tgv" / f"result.{task}.json")
    more = {"task": task, "metrics": {f"{metric},none": score / 2}}
    rewrite(tmp_path / "tgv" / f"result.{task}.json", **more)
    assert main_of_tables([str(tmp_path)]) == 0
    (table,) = [path for path in (tmp_path / "tables").glob("*.md") if "table4" not in path.name]
    assert f"\n{said}.\n" in table.read_text()
    assert r" in \%)}" in table.with_suffix(".tex").read_text() or "%" not in said
    unit = said.rpartition(" in ")[2] if " in " in said else "times 100"
    assert set(pd.read_csv(table.with_suffix(".csv"))["unit"].dropna()) == {unit}


@pytest.mark.parametrize(("name", "kind"), [("quickstart", "mini"), ("all_methods", "mini"), ("video", "mini_video")])
def test_the_reference_results_say_it_as_tables_do(name, kind):
    rows = []
    for path in sorted(
        (ROOT / "lmms_eval_plugins" / "tasks" / kind).glob("mini_*_*.yaml" if "_" in kind else "*.yaml")
    ):
        metric = re.search(r"- metric: (\w+)", path.read_text())
        judged = "videott_open_ended_score"
        rows += [] if path.stem == "mini_vlm" else [(path.stem, metric[1] if metric else judged)]
    frame = pd.DataFrame(rows, columns=["task", "metric"])
    frame["scale"] = [1 if metric.startswith("videott_") else 100 for metric in frame["metric"]]
    text = (ROOT / "results" / "reference" / f"{name}.md").read_text()
    assert f"Scores, with the share of the full cache's in brackets: {measures_of(frame)}. " in text

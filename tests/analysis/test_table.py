"""The table of a results folder: every configuration has a row of its own, failures stop it."""

import json
from pathlib import Path

import pytest

from analysis import efficiency
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


def test_an_empty_folder_says_what_to_run(tmp_path):
    with pytest.raises(ResultsError, match=r"bash scripts/quickstart\.sh"):
        load(tmp_path)


def test_scores_in_points_are_shown_as_they_are(tmp_path):
    write(tmp_path, "a", 750.0, method="tgv_kv", retention=0.5)
    write(tmp_path, "full", 1500.0)
    assert score_table(load(tmp_path).scores)["scene"].tolist() == ["1500.0 (100 %)", "750.0 (50 %)"]

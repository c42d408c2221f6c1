"""Pictures of one prefill, and whether covered attention predicts accuracy; from files, without torch."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import coverage, inspection, modality_gap
from analysis.errors import ResultsError

FIXTURE = Path(__file__).parent / "fixture" / "next"
CONFIGS = [("tgv_kv", 0.05, 0.9), ("h2o", 0.05, 0.6), ("streaming_llm", 0.05, 0.3)]


@pytest.fixture
def file(tmp_path):
    """Two layers, ten positions: text 0, 1, vision 2-6, text 7-9."""
    vision = np.array([0, 0, 1, 1, 1, 1, 1, 0, 0, 0], bool)
    received = np.tile(np.linspace(3, 0.1, 10), (2, 1))
    from_text = np.tile(np.array([2.5, 2.0, *[0.5] * 5, 0.9, 0.4, 0.1]), (2, 1))
    arrays = {
        "map": np.tril(np.ones((2, 5, 5))) / np.arange(1, 6)[:, None],
        "received": received,
        "from_text": from_text,
        "blocks": np.full((2, 2, 2), 0.5),
        "cosines": np.tile(np.eye(10), (2, 1, 1)),
        "similarity": np.zeros((2, 3)),
        "is_vision": vision,
        "bins": np.arange(10) // 2,
        "shown": np.concatenate([np.flatnonzero(vision), np.flatnonzero(~vision)]),
        "coverage": np.array([[value, value - 0.1] for _, _, value in CONFIGS]),
    }
    tokens = ["" if v else f"t{i}" for i, v in enumerate(vision)]
    configs = [{"method": name, "variant": "paper", "retention": budget} for name, budget, _ in CONFIGS]
    meta = {"schema": 1, "tokens": tokens, "configs": configs, "answer": "x", "steps": 3}
    folder = tmp_path / "inspected"
    folder.mkdir()
    np.savez_compressed(folder / "0.npz", meta=json.dumps(meta), **arrays)
    return folder / "0.npz"


def test_dominance_is_the_mean_over_the_text_rows_that_see_a_token(file):
    one = inspection.Inspected.read(file)
    np.testing.assert_allclose(one.dominance[0], [0.5, 0.5, 0, 0, 0, 0, 0, 0.3, 0.2, 0.1])


def test_what_gets_least_attention_is_evicted_first(file):
    assert inspection.Inspected.read(file).evicted_first(0).tolist() == list(range(9, -1, -1))


@pytest.mark.parametrize("width", ["264", "85"])
def test_the_gap_is_drawn(file, tmp_path, width):
    options = [str(file), "--width", width, "--output", str(tmp_path / "gap"), "--formats", "png"]
    assert modality_gap.main(options) == 0
    assert (tmp_path / "gap.png").stat().st_size > 10_000
    assert modality_gap.main([*options, "--layer", "2"]) == 2


def test_coverage_is_averaged_and_ranked(file):
    table = coverage.mean_table(inspection.coverages(inspection.files([file.parent])))
    assert table[0.05].round(3).to_dict() == {"tgv_kv": 0.85, "h2o": 0.55, "streaming_llm": 0.25}


def test_the_rank_correlation_is_spearman_s():
    pairs = pd.DataFrame({"retention": [0.1] * 4, "coverage": [0.1, 0.2, 0.3, 0.4], "share": [0.2, 0.1, 0.3, 0.9]})
    assert coverage.rank_correlations(pairs).set_index("budget")["rho"].to_dict() == {"10 %": "+0.80", "all": "+0.80"}
    assert coverage.rank_correlations(pairs[:2])["rho"].tolist() == ["too few", "too few"]


def test_the_command_prints_whether_it_predicts_accuracy(file, tmp_path, capsys):
    options = [str(file.parent), "--output", str(tmp_path / "coverage"), "--formats", "png", "--results"]
    assert coverage.main([*options, str(FIXTURE)]) == 2, "the folder has files that cannot be trusted"
    assert coverage.main([*options[:-1], "--retention", "0.3"]) == 2
    assert coverage.main(options[:-1]) == 0
    out = capsys.readouterr().out
    assert "tgv_kv" in out
    assert "85.0" in out
    assert (tmp_path / "coverage.png").is_file()


def test_a_file_that_is_none_is_named(tmp_path, file):
    (tmp_path / "x.npz").write_bytes(b"nothing")
    with pytest.raises(ResultsError, match=r"x.npz: not a file of python -m kv_caches.inspect"):
        inspection.Inspected.read(tmp_path / "x.npz")
    content = dict(np.load(file))
    np.savez(tmp_path / "y.npz", **content | {"meta": json.dumps({"schema": 7})})
    with pytest.raises(ResultsError, match=r"y.npz: version 7 of an inspection is unknown"):
        inspection.Inspected.read(tmp_path / "y.npz")

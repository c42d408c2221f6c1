"""Table 4 from a file of figures: shown by length, compared with the full cache, drawn, put into the report."""

import csv
import json
import re

import pytest

from analysis import artefacts, report, speed, tables
from analysis.runs import load
from tests.analysis.test_table import write

FULL = {
    "step_s": 0.08,
    "tokens_per_s_128": 10.0,
    "tokens_per_s_512": 20.0,
    "tokens_per_s_1500": 30.0,
    "kv_prompt_bytes": 4_000_000_000,
    "peak_decode_bytes": 4_200_000_000,
    "largest_batch": 4,
    "roofline_step_s": 0.05,
    "prefill_s": 2.0,
}
FIVE = {
    "step_s": 0.02,
    "tokens_per_s_128": 15.26,
    "tokens_per_s_512": 50.0,
    "tokens_per_s_1500": 120.0,
    "kv_prompt_bytes": 200_000_000,
    "peak_decode_bytes": 400_000_000,
    "largest_batch": 44,
    "roofline_step_s": 0.01,
    "prefill_s": 2.1,
}


def row(method, retention, length, batch, figures, **more):
    base = {"shape": "cpu", "device": "cpu", "method": method, "retention": retention, "length": length, "batch": batch}
    return base | {"new": 8, "prefilled": 1, "graph": False} | figures | more


ROWS = [
    row("full", 1.0, 2048, 8, FULL),
    row("tgv_kv", 0.05, 2048, 8, FIVE | {"step_s": 0.16}),
    row("stock", 1.0, 8192, 8, FULL | {"step_s": 0.4}),
    row("full", 1.0, 8192, 8, FULL),
    row("full", 1.0, 8192, 8, FULL | {"step_s": 0.04, "tokens_per_s_512": 25.0}, graph=True),
    row("tgv_kv", 0.05, 8192, 8, FIVE),
    row("tgv_kv", 0.05, 8192, 8, FIVE, graph=True),
    row("full", 1.0, 8192, 32, {"error": "does not fit: needs 64.0 GiB of 23.4"}),
    row("tgv_kv", 0.05, 8192, 32, FIVE),
]


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "results" / "efficiency" / "cpu-2-threads-cpu.json"
    made.parent.mkdir(parents=True)
    about = {"schema": 1, "device": "card", "copy_bandwidth": 2e9, "asked": 120, "left": 40, "resumes": True}
    made.write_text(json.dumps(about | {"rows": ROWS}))
    return made


def shown(path, capsys, *arguments):
    assert speed.main([str(path), *arguments]) == 0
    return capsys.readouterr().out


def block(text, heading):
    """Lines of the table below a heading, split where two spaces are."""
    lines = text.split(f"{heading}\n\n", 1)[1].split("\n\n", 1)[0].splitlines()
    return [re.split(r"\s{2,}", line.strip()) for line in lines[2:]]


def test_lengths_have_tables_of_their_own(path, capsys):
    text = shown(path, capsys)
    assert [line[:3] for line in block(text, "N = 2048")] == [["8", "full", "100 %"], ["tgv_kv", "5 %", "2.10"]]
    assert [line[:2] for line in block(text, "N = 8192")] == [
        ["8", "stock"],
        ["full", "100 %"],
        ["full, graph", "100 %"],
        ["tgv_kv", "5 %"],
        ["tgv_kv, graph", "5 %"],
        ["32", "full"],
        ["tgv_kv", "5 %"],
    ]
    assert "does not fit: needs 64.0 GiB of 23.4" in text
    assert "nan" not in text


def test_gains_are_ratios_to_the_full_cache_of_the_same_length_and_batch(path, capsys):
    lines = block(shown(path, capsys), "What eviction gains")
    assert lines[0] == ["2048", "8", "tgv_kv", "5 %", "0.50", "1.53", "2.50", "4.00", "20.0", "10.5", "11.0"]
    assert lines[1] == ["8192", "8", "tgv_kv", "5 %", "4.00", "1.53", "2.50", "4.00", "20.0", "10.5", "11.0"]
    assert lines[2][:5] == ["tgv_kv, graph", "5 %", "2.00", "1.53", "2.00"]
    reason = "full cache: does not fit: needs 64.0 GiB of 23.4"
    assert lines[3] == ["32", "tgv_kv", "5 %", *["-"] * 7, reason]


def test_the_papers_claims_stand_beside_what_was_measured(path, capsys):
    lines = block(shown(path, capsys), "The paper's claims beside this run")
    assert lines == [
        ["KV cache, full to kept [GB]", "3.91 to 0.20", "4 to 0.2", "4 to 0.2"],
        ["times less", "19.6", "20.0", "20.0"],
        ["tokens/s end to end, 128 tokens", "+52.6 %", "+52.6 %", "+52.6 %"],
        ["tokens/s end to end, 512 tokens", "+52.6 %", "+150.0 %", "+100.0 %"],
        ["tokens/s end to end, 1500 tokens", "+52.6 %", "+300.0 %", "+300.0 %"],
    ]


def test_without_8k_at_5_percent_nothing_stands_beside_the_paper(path, capsys):
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"rows": ROWS[:2]}))
    assert "paper" not in shown(path, capsys)


def test_what_is_not_measured_yet_is_one_line(path, capsys):
    text = shown(path, capsys)
    assert text.rstrip().endswith("40 of 120 configurations are not measured yet; the same command goes on")
    assert "One prompt of a batch was prefilled" in text
    content = json.loads(path.read_text()) | {"rows": [one | {"prefilled": one["batch"]} for one in ROWS], "left": 0}
    path.write_text(json.dumps(content))
    text = shown(path, capsys)
    assert "not measured yet" not in text
    assert "One prompt" not in text


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_picture_is_made(path, tmp_path, capsys, ending, start):
    for width in ("85", "264"):
        shown(path, capsys, "--plot", str(tmp_path / f"steps.{ending}"), "--width", width)
        assert (tmp_path / f"steps.{ending}").read_bytes().startswith(start)


def test_the_picture_has_a_line_per_retention_and_its_roofline(path):
    made = speed.speed_plot.plot(json.loads(path.read_text()))
    first, second = made.axes[:2]
    assert [axis.get_title() for axis in (first, second)] == ["batch 8", "batch 32"]
    assert first.get_xscale() == first.get_yscale() == "log"
    solid = {tuple(line.get_ydata()) for line in first.lines if line.get_linestyle() == "-"}
    dashed = {tuple(line.get_ydata()) for line in first.lines if line.get_linestyle() == "--"}
    assert solid == {(80, 80), (400,), (40,), (160, 20), (20,)}
    assert dashed == {(50, 50), (10, 10)}
    labels = [text.get_text() for text in made.legends[0].get_texts()]
    assert labels == [
        "full cache",
        "full cache, graph",
        "transformers' own cache",
        "tgv_kv 5 %",
        "tgv_kv, graph 5 %",
        "roofline, same colour",
    ]
    speed.style.plt.close(made)


@pytest.mark.parametrize(("name", "said"), [("steps", "--formats"), ("steps.gif", "--formats gif")])
def test_a_picture_of_another_kind_is_refused(path, tmp_path, capsys, name, said):
    assert speed.main([str(path), "--plot", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {said}")


def test_pictures_of_nothing_and_of_two_files_are_refused(path, tmp_path, capsys):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": ROWS[7:8]}))
    assert speed.main([str(path), "--plot", str(tmp_path / "a.png")]) == 2
    assert capsys.readouterr().err.startswith(f"error: {path}: none of its configurations was measured")
    with pytest.raises(SystemExit) as stopped:
        speed.main([str(path), str(path), "--plot", str(tmp_path / "a.png")])
    assert stopped.value.code == 2


@pytest.fixture
def runs(path):
    folder = path.parents[1] / "runs" / "study"
    folder.mkdir(parents=True)
    write(folder, "full", 0.8)
    write(folder, "tgv", 0.4, method="tgv_kv", retention=0.1)
    return folder


def test_tables_make_table_4_of_the_figures_beside_the_runs(runs, capsys):
    assert tables.main([str(runs)]) == 0
    assert "Table 4: time and memory, cpu shape, card" in capsys.readouterr().out
    stem = runs / "tables" / "table4-cpu-2-threads-cpu"
    assert "**What eviction gains**" in stem.with_suffix(".md").read_text()
    with stem.with_suffix(".csv").open() as file:
        assert [(line["length"], line["method"]) for line in csv.DictReader(file)] == [
            (str(one["length"]), one["method"]) for one in ROWS
        ]
    assert stem.with_suffix(".tex").read_text().count(r"\begin{table}") == 3


def test_the_report_has_the_figures_and_their_picture(runs):
    text = report.write(load([runs]), runs).read_text()
    assert "Table 4: time and memory, cpu shape, card" in text
    assert "What eviction gains" in text
    assert 'alt="decode step against context length, card"' in text


def test_damaged_figures_are_named_and_the_rest_is_made(runs, path, capsys):
    path.with_name("torn.json").write_text("{")
    assert artefacts.main([str(runs)]) == 0
    out = capsys.readouterr().out
    assert "Table 4 of torn.json: not made" in out
    assert (runs / "plots" / "steps-cpu-2-threads-cpu.svg").exists()
    assert "Table 4 of torn.json: not made" in (runs / "report.html").read_text()

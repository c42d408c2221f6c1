"""Score curves: what is drawn where, and how it stays readable."""

from pathlib import Path

import pytest

from analysis import pareto, style
from analysis.errors import ResultsError
from analysis.runs import load

FIXTURE = Path(__file__).parent / "fixture"


@pytest.fixture(scope="module")
def scores():
    return load(FIXTURE / "llava", allow_failures=True).scores


def drawn(scores, against="retention", width=style.README_MM):
    figure = pareto.plot(pareto.points(scores, against), against, width)
    figure.canvas.draw()
    return figure


def test_the_full_cache_is_a_line_across_and_methods_are_lines(scores):
    axis = drawn(scores).axes[0]
    lines = {line.get_label(): line for line in axis.get_lines()}
    assert lines["full cache"].get_ydata()[0] == pytest.approx(18.1)
    assert lines["tgv_kv"].get_xdata().tolist() == [5.0, 10.0]
    assert lines["tgv_kv"].get_ydata().tolist() == [15.0, pytest.approx(17.2)]


def test_a_score_stands_at_the_share_that_was_really_kept(scores):
    axis = drawn(scores).axes[1]
    assert axis.get_title() == "TextVQA-lite"
    line = next(line for line in axis.get_lines() if line.get_label() == "snapkv")
    assert line.get_xdata().tolist() == [5.25]


def test_the_paper_s_shares_are_hollow_marks():
    scores = load(FIXTURE / "next", allow_failures=True).scores
    axis = next(axis for axis in drawn(scores).axes if axis.get_title() == "VizWiz")
    mark = next(line for line in axis.get_lines() if line.get_label() == "paper")
    assert mark.get_markerfacecolor() == "none"
    assert mark.get_ydata()[0] == pytest.approx(0.992 * 60.6)


def test_methods_differ_without_colour():
    looks = [style.method_style(position) for position in range(32)]
    assert len({(look["marker"], look["linestyle"]) for look in looks}) == 32


@pytest.mark.parametrize("width", [style.README_MM, style.COLUMN_MM])
def test_no_label_overlaps_another(scores, width):
    figure = drawn(scores, width=width)
    boxes = [text.get_window_extent() for text in figure.legends[0].get_texts()]
    for axis in figure.axes:
        boxes += [text.get_window_extent() for text in (axis.title, axis.xaxis.label, axis.yaxis.label)]
        ticks = [*axis.get_xticklabels(), *axis.get_yticklabels()]
        boxes += [text.get_window_extent() for text in ticks if text.get_text()]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1


def test_there_is_one_legend(scores):
    figure = drawn(scores)
    assert len(figure.legends) == 1
    assert all(axis.get_legend() is None for axis in figure.axes)


def test_time_is_not_made_up_for_sweeps(scores):
    with pytest.raises(ResultsError, match="no answer was timed on its own"):
        pareto.points(scores, "latency")


def test_every_format_is_written(tmp_path):
    arguments = [str(FIXTURE / "next"), "--allow-failures", "--against", "memory", "--output", str(tmp_path / "plot")]
    assert pareto.main([*arguments, "--width", "85"]) == 0
    assert {path.suffix for path in tmp_path.iterdir()} == {".png", ".svg", ".pdf"}
    assert pareto.main([*arguments, "--tasks", "chartq"]) == 2
    assert pareto.main([*arguments, "--formats", "jpg"]) == 2

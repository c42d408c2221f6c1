"""Sides are timed in turn until their ratio is known; what was disturbed does not count."""

import itertools

import pytest

from benchmarks import paired
from benchmarks.bounds import LEAST, MET, MISSED, UNDECIDED, Promise
from benchmarks.load import Load

QUIET, BUSY = Load(), Load(others=0.4)


class Loads:
    """Watches that report one load after the other, without end the last; the first belongs to the warm-up."""

    def __init__(self, *loads):
        self.loads, self.marks = iter([QUIET, *loads, *itertools.repeat(loads[-1], 100)]), 0

    def __call__(self):
        self.load = next(self.loads)
        return self

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def mark(self):
        self.marks += 1


@pytest.fixture
def timed():
    """Sides A and B that take 1 and what is next in `timed.b`; `timed.order` says who ran."""

    class Pair(paired.Timed):
        pass

    def make(b, *promises):
        order, times = [], iter(b)
        sides = {"a": lambda: order.append("a") or 1.0, "b": lambda: order.append("b") or next(times)}
        pair = Pair(promises or (Promise("b / a", 2.0),), sides, lambda a, b: [b / a] * max(1, len(promises)))
        return pair, order

    return make


def test_sides_alternate_and_the_first_repeat_is_a_warm_up(timed):
    pair, order = timed([100.0, *[1.0] * 50])
    watch = Loads(QUIET)
    (finding,) = paired.measure(pair, 60, watch)
    assert finding.verdict == MET
    assert list(finding.values) == [1.0] * LEAST
    assert "".join(order) == "ab" + "abba" * (LEAST // 2)
    assert watch.marks == 1 + LEAST


def test_a_miss_is_decided_too(timed):
    pair, _ = timed([3.0] * 50)
    assert [finding.verdict for finding in paired.measure(pair, 60, Loads(QUIET))] == [MISSED]


def test_repeats_go_on_until_the_interval_is_on_one_side(timed):
    pair, _ = timed([1.0, *[1.0, 3.0, 1.0, 1.0, 1.0, 1.0], *[1.0] * 50])
    (finding,) = paired.measure(pair, 60, Loads(QUIET))
    assert finding.verdict == MET
    assert len(finding.values) > LEAST


@pytest.mark.parametrize("b", [1.0, 3.0])
def test_a_busy_machine_is_neither_a_pass_nor_a_miss(timed, b):
    pair, order = timed([b] * 100)
    (finding,) = paired.measure(pair, 60, Loads(BUSY))
    assert finding.verdict == UNDECIDED
    assert not finding.values
    assert "the machine was busy: other programs took up to 40% of the processors" in finding.reason
    assert len(order) == 2 * (1 + paired.MOST)


def test_a_burst_is_set_aside(timed):
    pair, _ = timed([1.0, 1.0, 9.0, 9.0, 9.0, *[1.0] * 50])
    (finding,) = paired.measure(pair, 60, Loads(QUIET, BUSY, BUSY, BUSY, QUIET))
    assert finding.verdict == MET
    assert set(finding.values) == {1.0}


def test_time_that_is_over_leaves_it_undecided(timed):
    pair, order = timed([1.0] * 50)
    (finding,) = paired.measure(pair, 1e-9, Loads(QUIET))
    assert finding.verdict == UNDECIDED
    assert finding.reason == "1 undisturbed repeats, 6 are needed; the time was over"
    assert len(order) == 4


def test_a_figure_is_measured_as_often_and_decides_nothing(timed):
    pair, _ = timed([5.0] * 50, Promise("promise", 9), Promise("figure"))
    promise, figure = paired.measure(pair, 60, Loads(QUIET))
    assert (promise.verdict, figure.verdict) == (MET, "")
    assert len(figure.values) == LEAST

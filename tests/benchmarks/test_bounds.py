"""When a promise holds, is missed, or cannot be decided: from made-up ratios."""

import math
import random

import pytest

from benchmarks.bounds import LEAST, MET, MISSED, UNDECIDED, Finding, Promise, as_text, status

MOST_1, LEAST_5 = Promise("share", 1.0), Promise("gain", 5, at_most=False)


def noisy(middle, spread, n=20, seed=0):
    """Ratios whose logarithms are spread evenly around the middle's."""
    draw = random.Random(seed)
    return [middle * math.exp(draw.uniform(-spread, spread)) for _ in range(n)]


@pytest.mark.parametrize(
    ("promise", "values", "verdict"),
    [
        (MOST_1, noisy(0.8, 0.1), MET),
        (MOST_1, noisy(1.2, 0.1), MISSED),
        (LEAST_5, noisy(6, 0.1), MET),
        (LEAST_5, noisy(4, 0.1), MISSED),
        (MOST_1, noisy(1.0, 0.1), UNDECIDED),
        (LEAST_5, noisy(5, 0.1), UNDECIDED),
        (MOST_1, noisy(0.9, 1.5, 8), UNDECIDED),
        (MOST_1, [1.0] * LEAST, MET),
        (MOST_1, [0.8 + 0.02 * i for i in range(20)], UNDECIDED),
        (MOST_1, [0.8] * 9 + [40.0], MET),
        (MOST_1, [1.2] * 9 + [0.01], MISSED),
        (MOST_1, [0.8] * (LEAST - 1), UNDECIDED),
        (MOST_1, [1.2] * (LEAST - 1), UNDECIDED),
        (MOST_1, [], UNDECIDED),
        (MOST_1, [*noisy(0.8, 0.1), math.nan], UNDECIDED),
        (MOST_1, [*noisy(0.8, 0.1), math.inf], UNDECIDED),
        (Promise("figure"), [3.0], ""),
    ],
)
def test_a_promise_is_decided_when_the_whole_interval_is_on_one_side(promise, values, verdict):
    finding = Finding(promise, values)
    assert finding.verdict == verdict
    assert len(finding.row()) == 5
    assert finding.reason


def test_ratios_whose_true_median_is_the_bound_are_seldom_decided():
    decided = [Finding(MOST_1, noisy(1.0, 0.3, 12, seed)).verdict for seed in range(400)]
    assert decided.count(MET) < 20  # 7 are expected
    assert decided.count(MISSED) < 20


def test_what_is_counted_needs_one_value():
    for value, verdict in ((1.0, MET), (1.01, MISSED), (math.nan, UNDECIDED)):
        finding = Finding(MOST_1, (value,), counted=True)
        assert finding.verdict == verdict
        assert "counted" in finding.row()
    assert Finding(MOST_1, (), counted=True, trouble="no such count here").reason == "no such count here"


def test_the_interval_is_that_of_the_ordered_values():
    assert Finding(MOST_1, [6, 1, 5, 2, 4, 3]).interval == (1, 6)
    assert Finding(MOST_1, [9, 8, 7, 6, 5, 4, 3, 2, 1]).interval == (2, 8)
    assert all(map(math.isnan, Finding(MOST_1, [1, 2, 3, 4, 5]).interval))


def test_the_table_has_the_spread_and_says_why_something_is_undecided():
    busy = Finding(LEAST_5, [4.0, 6.0], trouble="the machine was busy: other programs took up to 40% of the processors")
    also = Finding(Promise("speed", 5, at_most=False), [4.0, 6.0], trouble=busy.trouble)
    near = Finding(Promise("near", 1.0), [0.9, 0.95, 1.0, 1.0, 1.05, 1.1])
    lines = as_text([Finding(MOST_1, [0.8, 0.7, 0.9] * 3), busy, also, near]).splitlines()
    assert lines[2].split() == ["share", "0.800", "0.700", "to", "0.900,", "n", "=", "9", "at", "most", "1", "met"]
    assert lines[6:] == [
        "undecided: gain; speed: 2 undisturbed repeats, 6 are needed; "
        "the machine was busy: other programs took up to 40% of the processors",
        "undecided: near: the interval 0.900 to 1.100 has the bound inside it; more repeats decide: --seconds",
    ]


@pytest.mark.parametrize(
    ("values", "code"), [(([0.5],), 0), (([0.5], []), 3), (([0.5], [], [1.5]), 1), (([1.5],), 1), (([],), 3)]
)
def test_undecided_is_neither_success_nor_a_miss(values, code):
    assert status([Finding(MOST_1, value, counted=True) for value in values]) == code

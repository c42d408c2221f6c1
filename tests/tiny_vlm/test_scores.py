"""The metrics on cases worked out by hand."""

import pytest

from tiny_vlm.scores import anls, exact_match, object_f1, relaxed_accuracy


def test_anls_counts_edits_and_cuts_at_one_half():
    assert anls("4821", "4821") == 1.0
    assert anls("4721", "4821") == 0.75
    assert anls("1", "4821") == 0.0


def test_relaxed_accuracy_allows_five_percent():
    assert relaxed_accuracy("210", "200") == 1.0
    assert relaxed_accuracy("211", "200") == 0.0
    assert relaxed_accuracy("high", "200") == 0.0


def test_exact_match_ignores_case_and_a_final_period():
    assert exact_match("The star is red.", "the star is red") == 1.0
    assert exact_match("the star is blue", "the star is red") == 0.0


def test_object_f1_of_one_hit_among_two_and_three():
    assert object_f1("a red circle, a blue star", ("red circle", "green cross", "pink square")) == pytest.approx(0.4)
    assert object_f1("", ("red circle",)) == 0.0

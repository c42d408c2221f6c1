"""The checks for a GPU run, on the smallest shape and with replays that run the step again."""

import pytest

from benchmarks import card, check
from tests.recording import replay_by_running


def test_a_cards_promises_are_ratios_next_to_bounds(monkeypatch):
    replay_by_running(monkeypatch)
    timed = card.card_decode("cpu", "smoke", 256, 2, new=8)
    ratios = timed.ratios(**{name: side() for name, side in timed.sides.items()})
    assert [promise.bound for promise in timed.promises] == [3, 0.6]
    assert all(ratio > 0 for ratio in ratios)
    fits = card.card_long_prompt("cpu", "smoke", 512)
    assert [(finding.promise.bound, finding.values) for finding in fits] == [(1, (1,)), (0, (1,))]


def test_without_a_card_its_checks_are_not_offered(capsys):
    with pytest.raises(SystemExit):
        check.main(["card_decode"])
    assert "there is no check 'card_decode'; there are work, peak, kept, scoring" in capsys.readouterr().err

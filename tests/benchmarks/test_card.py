"""The checks for a GPU run, on the smallest shape and with replays that run the step again."""

import pytest

from benchmarks import card, check
from tests.recording import replay_by_running


def test_a_cards_promises_are_ratios_next_to_bounds(monkeypatch):
    replay_by_running(monkeypatch)
    bounds = card.card_decode("cpu", "smoke", 256, 2, new=8) + card.card_long_prompt("cpu", "smoke", 512)
    assert [bound.bound for bound in bounds] == [3, 0.6, 1, 0]
    assert all(bound.value > 0 for bound in bounds)
    assert [bound.value for bound in bounds[2:]] == [1, 1]


def test_without_a_card_its_checks_are_not_offered(capsys):
    with pytest.raises(SystemExit):
        check.main(["card_decode"])
    assert "there is no check 'card_decode'; there are scoring, released" in capsys.readouterr().err

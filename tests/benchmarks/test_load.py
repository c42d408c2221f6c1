"""What disturbs a measurement is noticed, from counters that are made up and from a thread that takes a processor."""

import pytest

from benchmarks import load
from benchmarks.load import Load, Watch


@pytest.fixture
def counters(monkeypatch):
    """Sets what a span of one second on two processors saw."""
    monkeypatch.setattr(load, "_fastest", lambda work: 1.0)
    monkeypatch.setattr(load.psutil, "cpu_count", lambda: 2)

    def saw(**seconds):
        zero = dict.fromkeys(("busy", "own", "stolen", "waited", "throttled"), 0.0)
        clock, spans = iter([0.0, 1.0]), iter([zero, zero | seconds])
        monkeypatch.setattr(load.time, "perf_counter", lambda: next(clock))
        monkeypatch.setattr(load, "_counters", lambda: next(spans))
        with Watch() as watch:
            pass
        return watch.load

    return saw


def test_a_quiet_machine_has_no_trouble(counters):
    seen = counters(busy=2.0, own=1.95, waited=0.01)
    assert seen.others == pytest.approx(0.025)
    assert seen.trouble == ""


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ({"busy": 2.0, "own": 1.0}, "other programs took up to 50% of the processors"),
        ({"busy": 1.0, "own": 1.0, "waited": 1.0}, "this program waited for a processor up to 50% of its time"),
        ({"busy": 2.0, "own": 1.8, "stolen": 0.2}, "the host of this virtual machine took up to 10% of the processors"),
        ({"throttled": 0.4}, "a limit of processor time stopped this program up to 40% of the time"),
    ],
)
def test_what_others_take_is_said(counters, seconds, words):
    assert counters(**seconds).trouble == words


def test_counters_that_a_system_lacks_or_that_run_behind_are_no_trouble(counters):
    assert counters(busy=0.0, own=1.9) == Load()


def test_a_machine_that_changes_its_speed_within_a_repeat_is_noticed(monkeypatch):
    seconds = iter([1.0, 1.0, 1.0, 1.5, 1.1, 1.1])
    monkeypatch.setattr(load, "_fastest", lambda work: next(seconds))
    with Watch() as watch:
        watch.mark()
    assert watch.load.pace == pytest.approx(0.5)
    assert "the same piece of work took up to 50% longer" in watch.load.trouble


def test_the_worst_of_several_loads_is_told():
    assert Load.worst([Load(others=0.2), Load(pace=0.6), Load(others=0.1)]) == Load(others=0.2, pace=0.6)
    assert Load.worst([]) == Load()


def test_counters_of_this_machine_are_seconds_that_grow():
    before = load._counters()
    with Watch():
        sum(range(1_000_000))
    after = load._counters()
    assert before.keys() == after.keys()
    assert after["own"] > before["own"]
    assert after["busy"] >= before["busy"] > 0

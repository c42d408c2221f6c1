"""Ctrl-C and SIGTERM: one line and the status of a shell, whenever they come."""

import os
import signal
import subprocess
import sys
import time

import pytest

from lmms_eval_plugins import signals

NUMBERS = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by SIGTERM"}


def send(*numbers):
    """Each as soon as the one before was answered."""
    with signals.stopping_on_signals():
        try:
            os.kill(os.getpid(), numbers[0])
            time.sleep(10)
        finally:
            for number in numbers[1:]:
                os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "word"), NUMBERS.items(), ids=NUMBERS.values())
def test_a_signal_is_one_line_and_a_status(number, word, capfd):
    before = [signal.getsignal(number) for number in NUMBERS]
    with pytest.raises(SystemExit) as stopped:
        send(number)
    assert stopped.value.code == 128 + number
    assert capfd.readouterr().err == f"error: {word}; {signals.ANSWERS}\n"
    assert [signal.getsignal(number) for number in NUMBERS] == before


def test_of_several_processes_the_first_one_says_it(monkeypatch, capfd):
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit) as stopped:
        send(signal.SIGTERM)
    assert stopped.value.code == 143
    assert capfd.readouterr().err == ""


def test_a_second_signal_right_after_the_first_changes_nothing(capfd):
    with pytest.raises(SystemExit) as stopped:
        send(signal.SIGINT, signal.SIGTERM)
    assert stopped.value.code == 130
    assert capfd.readouterr().err.count("error: ") == 1


def test_what_was_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals.stopping_on_signals():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


SLOW_IMPORT = "import time\ntry: time.sleep(60)\nfinally: print('left')\n"


@pytest.mark.parametrize("command", ["sweep", "judge"])
@pytest.mark.parametrize(("number", "word"), NUMBERS.items(), ids=NUMBERS.values())
def test_before_anything_is_loaded_too(number, word, command, tmp_path):
    """While the first of the slow libraries is imported."""
    (tmp_path / "torch.py").write_text("print('importing', flush=True)\n" + SLOW_IMPORT)
    line = [sys.executable, "-m", f"lmms_eval_plugins.{command}", "somewhere"]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    process = subprocess.Popen(
        line, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert errors.startswith(f"error: {word}; every ")
    assert len(errors.splitlines()) == 1

"""A script that is ended passes the signal on to all it started; a failure and a success are told apart."""

import shlex
import signal
import subprocess
import time

import pytest

from tests.test_readme import ROOT

SCRIPT = """
set -euo pipefail
cd {root}
source scripts/setup.sh
source scripts/logged.sh
logged {log} bash -c {command}
echo went on
"""
QUIET = "echo '[kv] started'; echo $$ > {pid}; exec sleep 60"
TALKING = "trap 'echo \"{says}\"; kill $!; exit 5' INT TERM; echo '[kv] started'; sleep 60 & echo $! > {pid}; wait"


def start(tmp_path, command):
    script = tmp_path / "script.sh"
    script.write_text(SCRIPT.format(root=ROOT, log=tmp_path / "out" / "log.txt", command=shlex.quote(command)))
    return subprocess.Popen(
        ["bash", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def of_process(pid, column):
    return subprocess.run(["ps", "-o", f"{column}=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()


def is_running(pid):
    return of_process(pid, "stat")[:1] not in ("", "Z")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("says", ["", "error: interrupted; every answer so far is on disk"])
def test_a_signal_reaches_all_that_the_script_started(number, says, tmp_path):
    pid = tmp_path / "pid"
    process = start(tmp_path, (TALKING if says else QUIET).format(pid=pid, says=says))
    while process.poll() is None and not (pid.is_file() and pid.read_text().strip()):
        time.sleep(0.01)
    while "sleep" not in of_process(int(pid.read_text()), "comm"):
        time.sleep(0.01)
    process.send_signal(number)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output) == (128 + number, "")
    word = says or f"error: ended by {number.name}; the same command goes on from what is there"
    lines = [line for line in errors.splitlines() if line != "Terminated"]  # bash, of a program that said nothing
    assert lines == ["[kv] started", word]
    deadline = time.monotonic() + 10
    while is_running(int(pid.read_text())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(int(pid.read_text()))


def test_a_failure_and_a_success_are_told_apart(tmp_path):
    process = start(tmp_path, "echo quiet; echo '[kv] shown'; echo 'error: why' >&2; exit 3")
    output, errors = process.communicate(timeout=30)
    log = tmp_path / "out" / "log.txt"
    assert (process.returncode, output) == (2, "")
    assert errors == f"[kv] shown\nerror: why\nerror: the evaluation failed; the whole log is {log}\n"
    assert log.read_text() == "quiet\n[kv] shown\nerror: why\n"
    process = start(tmp_path, "cat; echo '[kv] shown'")  # and there is nothing to be read from
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (0, "went on\n", "[kv] shown\n")

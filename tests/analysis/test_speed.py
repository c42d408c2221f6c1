"""A whole study, 5 models x 29 configurations x 10 tasks with records: every artefact in a minute and in 1 GB."""

import subprocess
import sys

from . import synthetic

MEASURE = """
import pathlib, resource, runpy, sys
sys.argv = ["artefacts", sys.argv[1]]
try:
    runpy.run_module("analysis.artefacts", run_name="__main__")
finally:
    own, others = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    seconds = own.ru_utime + own.ru_stime + (others.ru_utime + others.ru_stime) / 2
    status = pathlib.Path("/proc/self/status").read_text()  # ru_maxrss starts with what the caller used
    peak = int(status.split("VmHWM:")[1].split()[0])
    print("MEASURED", seconds, (peak + 2 * others.ru_maxrss) / 2**20)
"""


def test_every_artefact_of_a_whole_study_takes_less_than_a_minute_and_a_gigabyte(tmp_path):
    synthetic.write(tmp_path / "study")
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "study")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr[-2000:]
    seconds, gigabytes = map(float, result.stdout.split("MEASURED")[1].split())
    print(f"{seconds:.1f} s on two free cores, {gigabytes:.2f} GiB")
    assert seconds < 60, "processor time, so that a busy machine does not count; drawing runs on two cores"
    assert gigabytes < 1
    assert len(list((tmp_path / "study" / "tables").glob("table2-*.tex"))) == 5
    assert (tmp_path / "study" / "report.html").stat().st_size > 100_000

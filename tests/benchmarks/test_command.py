"""The README's commands of time and memory run, on a shape that takes seconds."""

import json

from tests.test_readme import BASH, run

COMMANDS = [line.split("#")[0].strip() for line in next(b for b in BASH if "efficiency.sh" in b).splitlines()]
SMALL = "--device cpu --shape smoke --lengths 256 --batches 1 --methods tgv_kv --retentions 0.05 --new 2 --no-official"


def test_the_script_explains_itself():
    result = run(f"{COMMANDS[0]} --help")
    assert result.returncode == 0
    assert result.stdout.startswith(f"usage: {COMMANDS[0]}")


def test_figures_are_printed_and_kept(tmp_path):
    result = run(f"{COMMANDS[0]} {SMALL} --output {tmp_path}/figures.json")
    assert result.returncode == 0, result.stderr[-2000:]
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]
    assert [(row["method"], row["retention"]) for row in rows] == [("stock", 1.0), ("full", 1.0), ("tgv_kv", 0.05)]
    assert "Table 4: time and memory, smoke shape, cpu-" in result.stdout


def test_ratios_are_printed_next_to_their_bounds():
    result = run(f"{COMMANDS[1]} growth --seconds 0.1")
    assert result.returncode == 3, result.stderr[-2000:]
    assert "at most 1.5" in result.stdout
    assert "\nundecided: scoring of 16k tokens" in result.stdout

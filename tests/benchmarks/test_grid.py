"""The grid is measured once, in the order of lengths, goes on where it was stopped and skips what cannot fit."""

import json
import subprocess
import sys
import time
from dataclasses import asdict

import psutil
import pytest

from benchmarks import cell, efficiency, options, phases, plan

SMALL = [
    "--grid",
    "--device",
    "cpu",
    "--shape",
    "smoke",
    "--lengths",
    "512,256",
    "--batches",
    "1,4",
    "--retentions",
    "0.5,0.05",
    "--new",
    "4",
]


def figures(measured, **more):
    """What a process of its own answers."""
    fixed = {"prefill_s": 2.0, "scoring_s": 0.1, "step_s": 0.01, "step_p95_s": 0.02, "weight_bytes": 1000}
    sizes = {"kv_prompt_bytes": 800, "kv_room_bytes": 200, "peak_prefill_bytes": 600, "peak_decode_bytes": 900}
    return asdict(measured) | fixed | sizes | more


@pytest.fixture
def path(tmp_path):
    return tmp_path / "grid.json"


@pytest.fixture
def run(monkeypatch, path):
    """Runs the command; returns its status and which cells it measured, the last of them interrupted if asked for."""
    monkeypatch.setattr(efficiency, "copy_bandwidth", lambda device: 1e9)

    def command(*arguments, interrupted_after=None):
        measured = []

        def apart(one):
            if len(measured) == interrupted_after:
                raise KeyboardInterrupt
            measured.append(one)
            return figures(one)

        monkeypatch.setattr(efficiency, "run_apart", apart)
        return efficiency.main([*SMALL, "--output", str(path), *arguments]), measured

    return command


def test_an_interrupted_grid_goes_on_with_the_rest(run, path, capsys):
    status, first = run(interrupted_after=1)
    assert (status, len(first)) == (130, 1)
    assert len(json.loads(path.read_text())["rows"]) == 1
    assert "15 of 16 configurations are not measured yet; the same command goes on" in capsys.readouterr().out
    status, rest = run()
    assert (status, len(rest)) == (0, 15)
    assert not set(first) & set(rest)
    assert "not measured yet" not in capsys.readouterr().out
    assert run()[1] == []
    assert len(json.loads(path.read_text())["rows"]) == 16


def test_a_run_that_is_ended_leaves_no_configuration_behind(path):
    command = [sys.executable, "-m", "benchmarks.efficiency", *SMALL, "--output", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.05)
        family = psutil.Process(process.pid)
        while not (children := family.children()):
            time.sleep(0.01)
        process.terminate()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    rows = json.loads(path.read_text())["rows"]
    assert f"{16 - len(rows)} of 16 configurations are not measured yet; the same command goes on" in said


def test_lengths_come_in_turn_the_shortest_first(run):
    measured = run()[1]
    assert [one.length for one in measured] == [256] * 8 + [512] * 8
    assert [(one.method, one.retention) for one in measured[:4]] == [
        ("stock", 1.0),
        ("full", 1.0),
        ("tgv_kv", 0.5),
        ("tgv_kv", 0.05),
    ]


def test_time_that_is_over_leaves_the_rest_to_the_same_command(run, path, monkeypatch, capsys):
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(efficiency.time, "monotonic", lambda: next(clock))
    assert len(run("--seconds", "25")[1]) == 2
    content = json.loads(path.read_text())
    assert (content["asked"], content["left"], len(content["rows"])) == (16, 14, 2)
    assert "14 of 16 configurations are not measured yet" in capsys.readouterr().out


def test_other_settings_are_measured_again_and_take_the_place(run, path):
    run()
    assert len(run("--new", "5")[1]) == 16
    rows = json.loads(path.read_text())["rows"]
    assert {row["new"] for row in rows} == {5}
    assert len(rows) == 16


def test_what_failed_is_tried_again(run, path, monkeypatch):
    run("--batches", "1")
    content = json.loads(path.read_text())
    content["rows"][3] = {k: v for k, v in content["rows"][3].items() if not k.endswith("_s")} | {"error": "killed"}
    path.write_text(json.dumps(content))
    assert [(one.length, one.method, one.retention) for one in run("--batches", "1")[1]] == [(256, "tgv_kv", 0.05)]


@pytest.mark.parametrize(("name", "value"), [("processor", "an abacus"), ("versions", {"torch": "1.0"})])
def test_figures_of_another_machine_are_not_gone_on_from(run, path, capsys, name, value):
    run()
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    capsys.readouterr()
    assert run() == (2, [])
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path} cannot be gone on from: {name} is ")
    assert error.count("\n") == 1
    assert len(run("--no-resume")[1]) == 16


def test_what_cannot_fit_is_not_tried_and_says_so(run, path, monkeypatch, capsys):
    one = 2 * 2 * 2 * 16 * 512 * 4  # layers, keys and values, KV heads, size, tokens, float32
    weights = 4 * (2 * (64 * 16 * 2 * (4 + 2) + 3 * 64 * 96) + 2 * 32064 * 64)
    monkeypatch.setattr(efficiency, "free_memory", lambda device: 2**30 + weights + 4 * one)
    measured = run()[1]
    assert [(one.length, one.batch, one.method) for one in measured if one.batch == 4] == [
        (256, 4, method) for method in ("stock", "full", "tgv_kv", "tgv_kv")
    ] + [(512, 4, "tgv_kv")] * 2
    skipped = [row for row in json.loads(path.read_text())["rows"] if "error" in row]
    assert [(row["length"], row["batch"], row["method"]) for row in skipped] == [(512, 4, "stock"), (512, 4, "full")]
    assert skipped[0]["error"] == "does not fit: needs 1.0 GiB of 1.0"
    assert "full cache: does not fit" in capsys.readouterr().out


def test_bytes_needed_follow_from_the_shape():
    base = {"shape": "llava-1.5-7b", "device": "cuda", "length": 8192, "batch": 16, "new": 8}
    prompt, gib = 4, 2**30  # GiB of 8k tokens: 32 layers, 4096 numbers, keys and values, bfloat16
    weights = plan.needed(cell.Cell(method="full", retention=1.0, **base)) - 16 * prompt * gib * (1 + 1 / 32) - gib
    assert 12.4 * gib < weights < 12.7 * gib
    held = {
        ("tgv_kv", 0.05, 16): 16 * prompt,  # all prompts until the last layer has run
        ("tgv_kv", 0.05, 1): prompt,
        ("snapkv", 0.5, 16): 16 * prompt * 0.5 * (1 + 1 / 32),  # evicts inside the layer
        ("official-style", 0.05, 16): prompt + 128,  # maps of 32 layers and 32 heads
    }
    for (method, retention, prefilled), gigabytes in held.items():
        one = cell.Cell(method=method, retention=retention, prefilled=prefilled, **base)
        assert plan.needed(one) == pytest.approx(gib + weights + gigabytes * gib, rel=1e-6)


def test_one_prefilled_prompt_counts_for_its_batch(monkeypatch):
    small = {"shape": "smoke", "device": "cpu", "method": "tgv_kv", "retention": 0.05, "length": 256, "new": 2}
    whole = cell.measure(cell.Cell(batch=4, prefilled=4, **small))
    seen, run = [], phases.run
    monkeypatch.setattr(phases, "run", lambda *args, **more: seen.append(run(*args, **more)) or seen[-1])
    row = cell.measure(cell.Cell(batch=4, prefilled=1, **small))
    for name in ("kv_prompt_bytes", "kv_room_bytes", "weight_bytes"):
        assert row[name] == whole[name]
    assert row["peak_prefill_bytes"] < 0.5 * whole["peak_prefill_bytes"]
    timed = seen[1]
    assert row["prefill_s"] == 4 * timed.prefill
    assert row["tokens_per_s"] == pytest.approx(4 * 2 / (4 * timed.prefill + sum(timed.steps)))


def test_the_largest_batch_counts_the_prefill_of_one_prompt(monkeypatch):
    monkeypatch.setattr(efficiency, "memory", lambda device: 11_600)
    made = cell.Cell("smoke", "cpu", "tgv_kv", 0.05, 256, 4, 2)
    assert efficiency.largest_batch(figures(made) | {"prefilled": 1}) == (11_600 - 1000 - 600) // 250
    assert efficiency.largest_batch(figures(made) | {"prefilled": 4}) == (11_600 - 1000 - 150) // 250


def test_the_whole_grid_has_120_configurations_on_a_cpu():
    read = options.read(["--grid", "--device", "cpu"], "")
    asked = list(plan.cells(read))
    assert (read.shape, len(set(asked)), len(asked)) == ("cpu-attention", 120, 120)
    assert {one.prefilled for one in asked} == {1}
    assert {one.graph for one in asked} == {False}


def test_a_card_of_139_gib_has_15_configurations_and_220_of_the_grid(monkeypatch):
    monkeypatch.setattr(options.torch.cuda, "is_available", lambda: True)
    asked = list(plan.cells(options.read([], "")))
    fitting = [one for one in asked if not plan.misfit(one, 139 * 2**30)]
    assert {(one.length, one.batch) for one in fitting} == {(8192, 16), (8192, 1), (32768, 1)}
    assert len(fitting) == 15
    assert "official-style" in {one.method for one in set(asked) - set(fitting)}
    assert len(list(plan.cells(options.read(["--grid"], "")))) == 220


def test_a_graph_is_captured_for_our_methods_on_a_gpu(monkeypatch):
    read = options.read(["--device", "cpu", "--methods", "tgv_kv", "--no-official", "--lengths", "256"], "")
    read.device = "cuda"
    names = [(one.method, one.retention, one.graph) for one in plan.cells(read)]
    assert names[:3] == [("stock", 1.0, False), ("full", 1.0, False), ("full", 1.0, True)]
    assert {graph for method, _, graph in names if method == "tgv_kv"} == {False, True}
    read.graph = "on"
    assert {one.graph for one in plan.cells(read) if one.method != "stock"} == {True}


def test_a_graph_is_handed_on_only_where_it_is_asked_for(monkeypatch):
    asked, run = [], phases.run

    def watched(*arguments, graph=False, **more):
        asked.append(graph)
        return run(*arguments, **more)

    monkeypatch.setattr(phases, "run", watched)
    small = cell.Cell("smoke", "cpu", "full", 1.0, 64, 1, 1, graph=True)
    assert cell.measure(small)["attention_and_cache_s"] is None
    assert asked == [True, True, True]
    monkeypatch.setattr(phases, "run", run)
    assert cell.measure(cell.Cell("smoke", "cpu", "full", 1.0, 64, 1, 1))["step_s"] > 0


def test_a_graph_on_a_cpu_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        efficiency.main(["--device", "cpu", "--graph", "on"])
    assert stopped.value.code == 2
    assert "argument --graph: on: CUDA graphs need a CUDA device" in capsys.readouterr().err

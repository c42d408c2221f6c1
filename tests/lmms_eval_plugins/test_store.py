"""What was answered once is never computed again and never lost; what was asked differently is never mixed up.

`KILLS=20 pytest -s -k kills` kills more often and prints what was on disk each time.
"""

import errno
import itertools
import json
import os
import random
import shutil
import signal
import time

import pytest
from lmms_eval import evaluator

from lmms_eval_plugins import journal, store, versions
from lmms_eval_plugins.errors import RunStopped
from lmms_eval_plugins.models.llava_hf import LlavaHfChat
from lmms_eval_plugins.store import Key, Store

from . import grid, toy

KILLS = int(os.environ.get("KILLS", "5"))


@pytest.fixture
def llava(checkpoint, monkeypatch):
    for name, value in grid.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return checkpoint("llava")


@pytest.fixture
def no_weights(monkeypatch):
    """From the call on, loading a model is an error."""

    def forbid():
        monkeypatch.setattr(LlavaHfChat, "_load", lambda self: pytest.fail("weights were loaded"))

    return forbid


def record(doc_id=0, answer="yes", **changes):
    known = {"task": "t", "doc_id": doc_id, "repeat": 0, "prompt_hash": "h", "status": "ok", "answer": answer}
    return known | {"generated_tokens": 3, "answer_tokens": 2, "eviction": None} | changes


PROOF = {"prompt_tokens": 9, "retention_achieved": 0.5, "kv_bytes_full": 8, "kv_bytes_kept": 4}


def key(doc_id=0):
    return Key("t", doc_id, 0, "h")


def answers(path):
    found = Store(path).load()
    return {i: found.find(key(i)).text for i in range(9) if found.find(key(i))}


def test_a_second_run_computes_nothing_and_loads_no_weights(llava, environment, no_weights, capsys):
    first = grid.ask(grid.wrapper(llava, environment), toy.documents())
    no_weights()
    assert grid.ask(grid.wrapper(llava, environment), toy.documents()) == first
    assert "[kv] 4 of 4 answers are in the store" in capsys.readouterr().out
    assert len(toy.records(environment)) == 4


def test_only_what_is_missing_is_computed(llava, environment):
    grid.ask(grid.wrapper(llava, environment), toy.documents()[:2])
    whole = grid.ask(grid.wrapper(llava, environment), toy.documents())
    assert len(toy.records(environment)) == 4
    assert whole == grid.ask(grid.wrapper(llava, environment / "other"), toy.documents())


def test_after_a_sweep_every_configuration_reads_its_answers(llava, environment, no_weights, monkeypatch, tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(grid.SWEEP)
    monkeypatch.setenv("KV_SWEEP", str(path))
    grid.ask(grid.wrapper(llava, environment), toy.documents())
    no_weights()
    for method, ratio in [("none", "0"), ("snapkv", "0.5"), ("ada_kv", "0.9")]:
        monkeypatch.setenv("KV_CACHE_TYPE", method)
        monkeypatch.setenv("PRUNE_RATIO", ratio)
        assert all(grid.ask(grid.wrapper(llava, environment), toy.documents()))


def test_equal_requests_of_one_run_are_told_apart(llava, environment):
    model = grid.wrapper(llava, environment)
    task = toy.ToyTask(toy.documents()[:1])
    model.task_dict = {toy.TASK: {toy.SPLIT: task.docs}}
    model.generate_until(task.requests(chat=True) * 3)
    assert [line["repeat"] for line in toy.records(environment)] == [0, 1, 2]


def test_missing_weights_end_the_run_with_one_line(llava, environment, tmp_path):
    folder = tmp_path / "weightless"
    shutil.copytree(llava, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(RunStopped) as stopped:
        grid.ask(grid.wrapper(folder, environment), toy.documents())
    assert f"pretrained={folder} cannot be loaded: " in stopped.value.message
    assert "\n" not in stopped.value.message


ENVIRONMENTS = [
    {},
    {"PRUNE_RATIO": "0.5"},
    {"KV_CACHE_TYPE": "snapkv"},
    {"KV_VARIANT": "official"},
    {"MAX_GENERATED_TOKENS": "3"},
]


def test_two_environments_never_share_an_answer(llava, environment, monkeypatch):
    for count, changes in enumerate(ENVIRONMENTS, start=1):
        with monkeypatch.context() as patch:
            for name, value in changes.items():
                patch.setenv(name, value)
            grid.ask(grid.wrapper(llava, environment), toy.documents()[:1])
        assert len(list(environment.glob("v1-*"))) == len(toy.records(environment)) == count


def test_another_prompt_under_the_same_number_is_another_sample(llava, environment):
    def asked(docs, **gen_kwargs):
        grid.ask(grid.wrapper(llava, environment), docs, **gen_kwargs)
        return len(toy.records(environment))

    docs = toy.documents()[:1]
    assert asked(docs) == 1
    assert asked(docs, tokens=5) == 2
    assert asked([docs[0] | {"text": "what is that?"}]) == 3
    assert asked([docs[0] | {"images": [toy.picture(7)]}]) == 4
    assert asked(docs) == 4


def add(path, rank, *records):
    opened = Store(path).open(rank)
    opened.append(records)
    opened.close()


def test_files_of_all_processes_are_merged_and_the_last_attempt_counts(tmp_path):
    path = tmp_path / "v1-0"
    for rank, answer in [(1, "old"), (0, "new")]:
        add(path, rank, record(answer=answer), record(doc_id=rank + 1))
    assert answers(path) == {0: "new", 1: "yes", 2: "yes"}
    assert {line["answer"] for line in store.newest_records(path).values()} == {"new", "yes"}


@pytest.mark.parametrize("ranks", [(0, 1), (1, 0), (0, 0)])
def test_no_clock_decides_which_record_counts(ranks, tmp_path, monkeypatch):
    path = tmp_path / "v1-0"
    monkeypatch.setattr(journal.time, "time", lambda: 4e9)
    add(path, ranks[0], record(status="failed", answer=None), record(doc_id=1, answer="of a clock that ran ahead"))
    monkeypatch.undo()
    add(path, ranks[1], record(), record(doc_id=1, answer="later"))
    assert answers(path) == {0: "yes", 1: "later"}
    counts = store.newest_records(path)
    assert [counts[key(doc)]["answer"] for doc in (0, 1)] == ["yes", "later"]


@pytest.mark.parametrize("ranks", [(0, 1), (1, 0), (0, 0)])
def test_a_later_failure_takes_nothing_from_an_answer(ranks, tmp_path):
    path = tmp_path / "v1-0"
    add(path, ranks[0], record())
    add(path, ranks[1], record(status="failed", answer=None))
    assert answers(path) == {0: "yes"}
    assert store.newest_records(path)[key()]["status"] == "ok"


def test_a_torn_last_line_is_absent_and_the_next_record_stays_whole(tmp_path):
    path = tmp_path / "v1-0"
    opened = Store(path).open(0)
    opened.append([record(0), record(1)])
    opened.close()
    file = path / "records.rank0.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    assert answers(path) == {0: "yes"}
    opened = Store(path).open(0)
    opened.append([record(2)])
    opened.close()
    assert answers(path) == {0: "yes", 2: "yes"}


def test_records_of_an_older_version_are_ignored_with_one_line(llava, environment, capsys):
    grid.ask(grid.wrapper(llava, environment), toy.documents())
    (file,) = environment.rglob("records.rank0.jsonl")
    file.write_text(file.read_text().replace(f'"schema": {store.SCHEMA}', '"schema": 1', 3))
    grid.ask(grid.wrapper(llava, environment), toy.documents())
    output = capsys.readouterr().out
    assert output.count("3 records of an older version are ignored") == 1
    assert "[kv] 1 of 4 answers are in the store" in output
    assert len(toy.records(environment)) == 7


def test_answers_of_other_versions_are_not_mixed_in_and_said_to_be_there(llava, environment, capsys, monkeypatch):
    docs = toy.documents()[:1]
    grid.ask(grid.wrapper(llava, environment), docs)
    (old,) = environment.glob("v1-*")
    config = json.loads((old / "config.json").read_text())
    config["versions"]["torch"] = "2.0.0"
    (old / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(versions, "deciding", lambda: {"torch": "now"})
    capsys.readouterr()
    grid.ask(grid.wrapper(llava, environment), docs)
    said = f"[kv] answers of other versions (torch 2.0.0 then, {versions.versions()['torch']} now) stay in {old}"
    assert capsys.readouterr().out.count(said) == 1
    assert len(list(environment.glob("v1-*"))) == len(toy.records(environment)) == 2
    grid.ask(grid.wrapper(llava, environment), docs)
    assert "other versions" not in capsys.readouterr().out


def test_two_runs_on_one_store_end_the_second_before_it_loads_weights(llava, environment, no_weights, capsys):
    model = grid.wrapper(llava, environment)
    model._runs[model.settings.kv].store.close()
    (folder,) = environment.glob("v1-*")
    ready, told = os.pipe()

    def hold():
        held = Store(folder).open(0)
        os.write(told, b"!")
        assert held is not None
        time.sleep(60)

    child = grid.forked(hold)
    try:
        os.read(ready, 1)
        no_weights()
        with pytest.raises(RunStopped) as stopped:
            grid.wrapper(llava, environment)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert stopped.value.code == 1
    assert str(folder) in stopped.value.message
    assert f"process {child}" in stopped.value.message
    grid.wrapper(llava, environment)  # the lock went with the process


def test_a_second_run_in_one_process_is_refused_although_lmms_eval_shares_locks(tmp_path):
    evaluator._enable_reentrant_filelocks()  # as every evaluation does, for good
    first = Store(tmp_path / "v1-0").open(0)
    with pytest.raises(RunStopped, match="1"):
        Store(tmp_path / "v1-0").open(0)
    first.close()
    Store(tmp_path / "v1-0").open(0).close()


def test_a_full_disk_ends_the_run_with_one_line_and_loses_nothing(llava, environment, monkeypatch, capsys):
    write, lines = os.write, itertools.count()

    def full(file, data):
        if b'"schema"' in data and next(lines) >= 2:
            write(file, data[:30])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(journal.os, "write", full)
        with pytest.raises(RunStopped) as stopped:
            grid.ask(grid.wrapper(llava, environment, batch=1), toy.documents())
    assert stopped.value.code == 1
    assert "No space left on device" in stopped.value.message
    assert len(capsys.readouterr().err.strip().split("error: ")) == 2
    assert len(toy.records(environment)) == 2
    (folder,) = environment.glob("v1-*")
    child = grid.forked(lambda: grid.ask(grid.wrapper(llava, environment), toy.documents()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1  # this process still holds the lock
    assert len(Store(folder).load()) == 2


def test_kills_at_random_moments_lose_nothing_and_compute_nothing_twice(llava, environment, monkeypatch, tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(grid.SWEEP)
    monkeypatch.setenv("KV_SWEEP", str(path))
    monkeypatch.setenv("KV_DECODE_BATCH", "2")
    docs = toy.documents() * max(1, 3 * (KILLS // 10))
    expected = grid.ask(grid.wrapper(llava, environment / "whole", batch=1), docs)
    total = grid.CONFIGURATIONS * len(docs)
    folder, rng = environment / "killed", random.Random(0)

    def stored():
        return sum(file.read_bytes().count(b"\n") for file in folder.rglob("records.rank0.jsonl"))

    for kill in range(1, KILLS + 1):
        before = stored()
        child = grid.forked(lambda: grid.ask(grid.wrapper(llava, folder, batch=1), docs))
        target = before + rng.randint(1, 3)
        while stored() < target:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.05))
        os.killpg(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        print(f"kill {kill}: {stored()} of {total} answers on disk, {stored() - before} of them new")
    assert stored() < total
    assert grid.ask(grid.wrapper(llava, folder, batch=1), docs) == expected
    lines = [json.loads(line) for file in folder.rglob("*.jsonl") for line in file.read_text().splitlines()]
    distinct = {(line["fingerprint"], line["doc_id"]) for line in lines}
    print(f"then to the end: {len(lines)} answers on disk, {len(lines) - len(distinct)} of them computed twice")
    assert len(lines) == total == len(distinct)
    whole = {(line["fingerprint"], line["doc_id"]): line["answer"] for line in toy.records(environment / "whole")}
    assert {(line["fingerprint"], line["doc_id"]): line["answer"] for line in lines} == whole


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended by SIGTERM")])
def test_an_interrupted_run_says_how_to_go_on_and_goes_on(number, word, llava, environment, capfd, monkeypatch):
    def ask_slowly():
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background starts with it ignored
        append = Store.append
        monkeypatch.setattr(Store, "append", lambda *args: [append(*args), time.sleep(60)])
        grid.ask(grid.wrapper(llava, environment, batch=1), toy.documents(), tokens=200)

    child = grid.forked(ask_slowly)
    while not toy.records(environment):
        time.sleep(0.002)
    os.kill(child, number)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 128 + number
    errors = [line for line in capfd.readouterr().err.splitlines() if line.startswith(("error: ", "Traceback"))]
    assert errors == [f"error: {word}; every answer so far is on disk, and the same command goes on from there"]
    before = len(toy.records(environment))
    assert 0 < before < len(toy.documents())
    grid.ask(grid.wrapper(llava, environment, batch=1), toy.documents(), tokens=200)
    assert len(toy.records(environment)) == len(toy.documents())


def test_a_call_leaves_the_gaps_of_other_configurations_to_theirs(llava, environment, monkeypatch, tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text("retention: [0.1]\nmethods: [full, tgv_kv, snapkv]\n")
    monkeypatch.setenv("KV_SWEEP", str(path))
    whole = grid.ask(grid.wrapper(llava, environment), toy.documents())
    (gap,) = (
        path.with_name("records.rank0.jsonl")
        for path in environment.glob("v1-*/config.json")
        if json.loads(path.read_text())["config"]["method"] == "snapkv"
    )
    gap.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(LlavaHfChat, "_load", lambda self: pytest.fail("weights were loaded"))
        assert grid.ask(grid.wrapper(llava, environment), toy.documents()) == whole
    monkeypatch.setenv("KV_CACHE_TYPE", "snapkv")
    assert all(grid.ask(grid.wrapper(llava, environment), toy.documents()))
    assert len(toy.records(gap.parent)) == len(toy.documents())
    assert len(toy.records(environment)) == 3 * len(toy.documents())


@pytest.mark.parametrize(
    "line",
    ["[" * 200_000, "[]", "{}", '{"schema": 2}']
    + [
        json.dumps(record(schema=2, fingerprint="v1-0", time=1.0) | broken)
        for broken in (
            {"time": "noon"},
            {"doc_id": [1]},
            {"status": "maybe"},
            {"answer": None},
            {"generated_tokens": None},
            {"answer_tokens": "three"},
            {"answer_tokens": 10**400},
            {"eviction": [1]},
            {"eviction": {"retention_achieved": 0.5}},
            {"eviction": PROOF | {"retention_achieved": "half"}},
            {"eviction": PROOF | {"kv_bytes_kept": None}},
            {"eviction": PROOF | {"kv_bytes_full": float("nan")}},
            {"repeat": "once"},
            {"attempt": None},
        )
    ],
    ids=lambda line: line[-40:],
)
def test_a_broken_line_is_an_answer_that_is_not_there(tmp_path, line):
    path = tmp_path / "v1-0"
    opened = Store(path).open(0)
    opened.append([record(doc_id=7)])
    opened.close()
    with (path / "records.rank1.jsonl").open("w") as file:
        file.write(line + "\n")
    (path / "records.rank2.jsonl").mkdir()
    assert set(answers(path)) == {7}
    assert all(line["doc_id"] == 7 for line in store.newest_records(path).values() if line.get("schema") == 2)

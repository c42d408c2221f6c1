"""Data sets that cannot be read are found before weights are loaded: one line, with the command that mends it."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import datasets
import huggingface_hub
import pytest
from lmms_eval.api import task as lmms_eval_task
from tenacity import RetryError, retry, stop_after_attempt

from kv_caches import KVConfig
from lmms_eval_plugins import data_cache, data_sets, fetch, needs, preflight, sweep
from lmms_eval_plugins.errors import RunStopped, in_one_line
from tests import hub as standin
from tests import stock_data

FETCH = "python -m lmms_eval_plugins.fetch"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with standin.serving(stock_data.repositories(tmp_path_factory.mktemp("videos"))) as hub:
        yield hub


@pytest.fixture
def home(served, tmp_path, monkeypatch):
    """An empty HF_HOME of someone who is logged in and online."""
    found = tmp_path / "home"
    monkeypatch.setenv("HF_HOME", str(found))
    monkeypatch.setenv("HF_TOKEN", standin.TOKEN)
    for name in ("HF_DATASETS_CACHE", "LMMS_EVAL_DATASETS_CACHE", "LOCAL_RANK", "OFFLINE_BECAUSE"):
        monkeypatch.delenv(name, raising=False)
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "ENDPOINT", served.url)
    template = served.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(found / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(found / "token"))
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", served.url)
    files = served.url + "/datasets/{repo_id}/resolve/{revision}/{path}"
    monkeypatch.setattr(datasets.config, "HUB_DATASETS_URL", files)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", found / "datasets")
    _offline(monkeypatch, False)
    lmms_eval_task._resolve_hf_datasets_cache_dir.cache_clear()
    yield found
    lmms_eval_task._resolve_hf_datasets_cache_dir.cache_clear()


def _offline(monkeypatch, value=True):
    for module in (huggingface_hub.constants, datasets.config):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", value)


@pytest.fixture
def offline(home, monkeypatch):
    return lambda: _offline(monkeypatch)


def problems(*tasks):
    return list(data_sets.problems(needs.of(tasks)))


ALL = (*stock_data.IMAGE_TASKS, *stock_data.VIDEO_TASKS)


def test_what_was_fetched_is_there_offline(home, offline, capsys):
    assert problems(*ALL) == []
    assert not list(data_cache.folder().glob("lmms*"))
    assert fetch.main([",".join(ALL)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"chartqa: 2 samples of lmms-lab-encoder/ChartQA in {home}/datasets"
    assert len(lines) == len(ALL)
    offline()
    capsys.readouterr()
    assert problems(*ALL) == []
    assert capsys.readouterr().err == ""
    assert (home / "video-tt" / "Benchmark-AllVideos-LQ" / "v0.mp4").is_file()


def test_arguments_that_are_not_the_builder_s_are_left_out(home, offline):
    """As hundreds of tasks have them; functions as arguments, and tasks of a class of their own, are not looked at."""
    others = {"trust_remote_code": True, "verification_mode": "no_checks", "force_download": False}
    need = needs.Needs("lmms-lab-encoder/ChartQA", None, {"token": True} | others, "test")
    assert list(data_sets.problems({"any": need})) == []
    fetch.main(["chartqa"])
    offline()
    assert list(data_sets.problems({"any": need})) == []
    assert needs.of(["vstat"])["vstat"].dataset is None
    assert problems("egoplan2", "vstat") == []


def test_no_login(home, monkeypatch, served):
    monkeypatch.delenv("HF_TOKEN")
    (line,) = problems("chartqa", "mini_chart")
    assert line.startswith("--tasks chartqa: the data set lmms-lab-encoder/ChartQA is read with a token")
    assert "hf auth login" in line
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    monkeypatch.setattr(served, "private", {"lmms-lab-encoder/ChartQA"})
    (line,) = problems("chartqa")
    assert "the hub does not show the data set lmms-lab-encoder/ChartQA to you" in line
    assert "hf auth whoami" in line
    with pytest.raises(RunStopped):
        fetch.main(["chartqa"])


def test_offline_with_nothing(home, offline, monkeypatch):
    offline()
    (line,) = problems("chartqa", "mini_chart")
    assert line == (
        f"--tasks chartqa: the data set lmms-lab-encoder/ChartQA is not in {home}/datasets, and HF_HUB_OFFLINE=1 "
        f"forbids to download it; with network: HF_HUB_OFFLINE=0 {FETCH} chartqa"
    )
    monkeypatch.setenv("OFFLINE_BECAUSE", "CKPT=/a is a folder")
    (line,) = problems("chartqa")
    assert "HF_HUB_OFFLINE=1 (the script set it: CKPT=/a is a folder; HF_HUB_OFFLINE=0 undoes it) forbids" in line


def test_one_process_of_each_machine_asks(home, offline, monkeypatch, capsys):
    offline()
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert problems("chartqa") == []
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("RANK", "8")
    with pytest.raises(RunStopped):
        problems("chartqa")
    assert "(process 8)" in capsys.readouterr().err


def test_offline_with_the_hub_s_files_only(home, offline, capsys):
    huggingface_hub.snapshot_download("lmms-lab-encoder/DocVQA", repo_type="dataset", token=True)
    offline()
    with pytest.raises(ConnectionError):
        datasets.load_dataset("lmms-lab-encoder/DocVQA", "DocVQA", token=True)
    (line,) = problems("docvqa_val")
    assert "lies in the hub's cache as it was downloaded" in line
    assert line.endswith(f"this prepares it, without network: {FETCH} docvqa_val")
    assert fetch.main(["docvqa_val"]) == 0
    assert "docvqa_val: 2 samples of lmms-lab-encoder/DocVQA" in capsys.readouterr().out
    assert problems("docvqa_val") == []
    loaded = datasets.load_dataset("lmms-lab-encoder/DocVQA", "DocVQA", token=True, cache_dir=str(data_cache.folder()))
    assert len(loaded["validation"]) == 2


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [("num_examples: 5000", "expected"), ("", "README.md does not say how many samples it has")],
)
def test_hub_s_files_that_may_not_be_whole_are_not_prepared(wrong, reason, home, offline, capsys):
    found = Path(huggingface_hub.snapshot_download("lmms-lab-encoder/textvqa", repo_type="dataset", token=True))
    offline()
    readme = found / "README.md"
    text = readme.read_text()
    readme.unlink()
    stated = text.replace("num_examples: 2", wrong) if wrong else text[: text.index("dataset_info")] + "---\n"
    readme.write_text(stated)
    with pytest.raises(RunStopped):
        fetch.main(["textvqa_val"])
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: lmms-lab-encoder/textvqa cannot be prepared from ")
    assert reason in line
    assert not list(data_cache.folder().glob("*/*/*/*/*.arrow"))


def test_a_cache_of_lmms_eval_s_own(home, offline, monkeypatch, tmp_path):
    monkeypatch.setenv("LMMS_EVAL_DATASETS_CACHE", str(tmp_path / "own"))
    assert fetch.main(["chartqa"]) == 0
    offline()
    assert problems("chartqa") == []
    monkeypatch.delenv("LMMS_EVAL_DATASETS_CACHE")
    lmms_eval_task._resolve_hf_datasets_cache_dir.cache_clear()
    assert problems("chartqa")[0].endswith(f"this prepares it, without network: {FETCH} chartqa")


def test_a_network_file_system(home, offline, monkeypatch, tmp_path, capsys):
    datasets.load_dataset("lmms-lab-encoder/ChartQA", token=True)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("LMMS_LOCAL_CACHE", str(tmp_path / "scratch"))
    monkeypatch.setattr(lmms_eval_task, "detect_fs_type", lambda path: lmms_eval_task.FsType.REMOTE)
    offline()
    (line,) = problems("chartqa")
    assert f"is prepared in {home}/datasets, but lmms-eval reads {tmp_path}/scratch/lmms_eval_hf_datasets/" in line
    assert "(it avoids network file systems)" in line
    mend = line.split("export ")[1].split("=")
    monkeypatch.setenv(*mend)
    lmms_eval_task._resolve_hf_datasets_cache_dir.cache_clear()
    assert problems("chartqa") == []


def test_another_configuration(home, offline):
    datasets.load_dataset("lmms-lab-encoder/DocVQA", "InfographicVQA", token=True)
    offline()
    (line,) = problems("docvqa_val")
    assert f"of the data set lmms-lab-encoder/DocVQA, {home}/datasets has InfographicVQA and not DocVQA" in line
    assert line.endswith(f"HF_HUB_OFFLINE=0 {FETCH} docvqa_val")


@pytest.mark.parametrize("damage", ["cut", "lost", "no information"])
def test_a_damaged_data_set(damage, home, offline):
    fetch.main(["chartqa"])
    (arrow,) = home.glob("datasets/*/*/*/*/*.arrow")
    if damage == "cut":
        arrow.write_bytes(arrow.read_bytes()[:2000])
    elif damage == "lost":
        arrow.unlink()
    else:
        arrow.with_name("dataset_info.json").write_text("{")
    offline()
    (line,) = problems("chartqa")
    assert "the data set lmms-lab-encoder/ChartQA is damaged (" in line
    assert line.endswith(f"): rm -r {arrow.parent}, then with network: HF_HUB_OFFLINE=0 {FETCH} chartqa")
    shutil.rmtree(arrow.parent)
    assert fetch.main(["chartqa"]) == 0
    assert problems("chartqa") == []


def test_a_damaged_embedded_data_set(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert problems("mini_scene") == []
    (arrow,) = tmp_path.glob("mini_vlm/scene*/*/*.arrow")
    arrow.write_bytes(arrow.read_bytes()[:1000])
    (line,) = problems("mini_scene")
    folder = arrow.parents[1]
    assert line.startswith(f"--tasks mini_scene: the data set in {folder} cannot be read (")
    assert line.endswith(f"rm -r {folder}")
    shutil.rmtree(folder)
    assert problems("mini_scene") == []


@retry(stop=stop_after_attempt(2))
def _always_fails(*_):
    raise ValueError("no such split\nmore")


def test_an_exception_behind_repeated_attempts_is_named():
    with pytest.raises(RetryError) as raised:
        _always_fails()
    assert in_one_line(raised.value) == "no such split"
    assert in_one_line(KeyError()) == "KeyError"


def test_a_run_that_ends_in_it_says_the_cause_and_its_log_has_the_traceback(tmp_path, capsys):
    args = SimpleNamespace(output_path=str(tmp_path), model_args="", verbosity="ERROR")
    run = SimpleNamespace(kv=KVConfig("full"), fingerprint="v1-0")
    with pytest.raises(RunStopped):
        sweep._Sweep([], [run], args)._score(SimpleNamespace(cli_evaluate_single=_always_fails), args, run)
    said = capsys.readouterr()
    assert said.err == "error: the run did not finish: no such split\n"
    assert "Traceback" in said.out
    try:
        _always_fails()
    except RetryError as error:
        message = f"Error during evaluation: {error}. Please set"
        with pytest.raises(RunStopped):
            preflight.stop_on_error_message({"name": "lmms_eval.__main__", "message": message})
    assert capsys.readouterr().err == "error: the run did not finish: no such split\n"

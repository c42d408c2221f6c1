"""The commands of docs/data.md run as printed, against a stand-in of the hub; its counts are the harness's own."""

import re

import pytest

from lmms_eval_plugins import needs
from lmms_eval_plugins.sweeps import load_sweep
from tests import stock_data
from tests.hub import TOKEN, serving
from tests.test_readme import ROOT, run

PAGE = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
ONCE, DOWNLOADED, CLUSTER = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture(scope="module")
def variables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    with serving(stock_data.repositories(folder)) as served:
        yield {"HF_ENDPOINT": served.url, "HF_HOME": f"{folder}/home", "HF_HUB_OFFLINE": "0"}


def test_data_are_fetched_once_and_prepared_without_network(variables):
    done = run("set -e\n" + ONCE, HF_TOKEN=TOKEN, **variables)
    assert done.returncode == 0, done.stderr
    for task in stock_data.IMAGE_TASKS:
        assert f"{task}: {stock_data.DOCUMENTS} samples of " in done.stdout
    own = {"HF_TOKEN": TOKEN, "LMMS_EVAL_DATASETS_CACHE": f"{variables['HF_HOME']}/elsewhere"}
    done = run("set -e\n" + DOWNLOADED, **variables | own)
    assert done.returncode == 0, done.stderr
    assert f"in {own['LMMS_EVAL_DATASETS_CACHE']}" in done.stdout.splitlines()[-1]


def test_a_cluster_shares_one_folder(variables, tmp_path):
    """The checkpoint of the last command is not there: all that is missing."""
    done = run(CLUSTER, HF_TOKEN=TOKEN, OUTPUT=f"{tmp_path}/out", **variables)
    assert f"docvqa_val: {stock_data.DOCUMENTS} samples of " in done.stdout
    missing = [line for line in done.stdout.splitlines() if line.startswith("cannot run yet")]
    assert len(missing) == 1, done.stdout + done.stderr
    assert "Qwen/Qwen3-VL-8B-Instruct" in missing[0]


def test_the_page_has_the_data_sets_of_every_script_and_their_numbers():
    rows = dict(re.findall(r"^\| `([\w*]+)` \| `([\w/.-]+)`", PAGE, flags=re.MULTILINE))
    tasks = needs.of([*stock_data.IMAGE_TASKS, *stock_data.VIDEO_TASKS])
    assert {task: rows.get(task, rows["videott_*"]) for task in tasks} == {t: need.dataset for t, need in tasks.items()}
    counts = [int(count.replace(",", "")) for count in re.findall(r"`lmms-lab-encoder/.*?\| ([\d,]+) \|", PAGE)]
    runs = len(load_sweep("paper"))
    assert f"({runs} configurations)" in PAGE
    assert f"| {sum(counts):,} | {sum(counts) * runs:,} |" in PAGE
    assert f"| 5,000 | {5000 * runs:,}," in PAGE

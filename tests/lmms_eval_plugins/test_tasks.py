"""The mini tasks: same samples everywhere, made once, scored as described."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import datasets
import pytest
from lmms_eval.tasks import TaskManager

from lmms_eval_plugins.tasks import mini
from lmms_eval_plugins.tasks.mini import dataset, scoring
from tiny_vlm.data import KINDS, make_samples

FOLDER = Path(mini.__file__).parent


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(dataset, "SAMPLES", 6)
    return tmp_path / "mini_vlm"


def test_a_dataset_holds_the_held_out_samples(cache):
    rows = datasets.load_from_disk(dataset.scene_path)["test"]
    expected = make_samples("scene", "test", 6)
    assert rows["id"] == [sample.id for sample in expected]
    assert rows[2]["image"].tobytes() == expected[2].image.tobytes()
    assert rows[2]["answers"] == list(expected[2].answers)
    assert [path.name for path in cache.iterdir()] == [f"scene-test-6-{dataset.generator_version()}"]
    with pytest.raises(AttributeError):
        dataset.__getattr__("music_path")


def test_processes_that_start_at_once_get_the_same_dataset(cache):
    with ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(dataset.dataset_dir, ["caption"] * 3))) == 1
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("task_type", ["simple", "chat"])
def test_lmms_eval_loads_all_four(task_type):
    manager = TaskManager(include_path=str(FOLDER), include_defaults=False)
    tasks = next(iter(manager.load_task_or_group("mini_vlm", task_type).values()))
    assert sorted(tasks) == sorted(f"mini_{kind}" for kind in KINDS)
    for kind in KINDS:
        task = tasks[f"mini_{kind}"]
        doc = task.test_docs()[0]
        assert task.doc_to_text(doc) == doc["question"]
        (right,) = task.process_results(doc, [doc["answers"][0]]).values()
        (wrong,) = task.process_results(doc, ["nothing of that"]).values()
        assert (float(right), float(wrong)) == (1.0, 0.0)


def test_scores_forgive_what_their_names_promise():
    doc = {"answers": ["200"]}
    assert scoring.chart_results(doc, ["209"]) == {"relaxed_accuracy": 1.0}
    assert scoring.chart_results(doc, ["211"]) == {"relaxed_accuracy": 0.0}
    assert scoring.scene_results({"answers": ["the circle is red"]}, ["Circle is red."]) == {"exact_match": 1.0}


@pytest.mark.parametrize(
    ("caption", "score"),
    [
        ("a red circle, a blue star", 1.0),
        ("A BLUE STAR and one red circle", 1.0),
        ("a red circle", 2 / 3),
        ("a red circle, a red circle, a blue star", 0.8),
        ("a blue circle, a red star", 0.0),
        ("a circle, a star", 0.0),
        ("", 0.0),
    ],
)
def test_object_f1(caption, score):
    assert scoring.object_f1(caption, ["red circle", "blue star"]) == pytest.approx(score)

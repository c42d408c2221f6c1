"""The Video-TT tasks: stock's prompts and splits under stock's names, no judge while generating, longer answers."""

from pathlib import Path

import lmms_eval
import pytest
from lmms_eval import evaluator
from lmms_eval.utils import load_yaml_config

from lmms_eval_plugins import checks, needs, precedence
from lmms_eval_plugins.judge import scoring
from lmms_eval_plugins.tasks.videott import task

OPEN = ["no_leading_oe", "paraphrase_oe", "wrong_leading_oe", "correct_leading_oe"]
STOCK = Path(lmms_eval.__file__).parent / "tasks" / "video-tt"
DOC = {
    "question": "Why does she run?",
    "question_prompt": "Answer shortly.",
    "video_id": "v1",
    "answer": "B",
    "capability": "Plot Attribute",
}


def config(name):
    return load_yaml_config(precedence.replaced()[name], mode="full")


def stock_config(name):
    """By the file's name: the task in it may be called otherwise."""
    return load_yaml_config(str(STOCK / f"{name}.yaml"), mode="full")


@pytest.mark.parametrize("name", [*(f"videott_{kind}" for kind in OPEN), "videott_single_mc", "videott_all"])
def test_a_task_asks_what_stock_asks_of_the_same_documents(name):
    mine, stock = config(name), stock_config(name)
    assert (mine["test_split"], mine["dataset_path"]) == (stock["test_split"], stock["dataset_path"])
    assert mine["dataset_kwargs"] == stock["dataset_kwargs"]
    assert mine["doc_to_text"](DOC) == stock["doc_to_text"](DOC, stock["lmms_eval_specific_kwargs"]["default"])
    same = {key: value for key, value in stock["generation_kwargs"].items() if key != "max_new_tokens"}
    assert mine["generation_kwargs"] == same | {"max_new_tokens": mine["generation_kwargs"]["max_new_tokens"]}


def test_every_file_is_named_after_its_task_and_covers_stock_s_names():
    files = precedence.replaced()
    assert {load_yaml_config(path, mode="simple")["task"] for path in files.values()} == set(files)
    stock = {load_yaml_config(str(path), mode="simple").get("task") for path in STOCK.glob("videott_*_oe.yaml")}
    assert stock <= set(files)


def test_the_limit_is_stock_s_until_it_is_set(monkeypatch):
    def limits():
        return [config(f"videott_{kind}")["generation_kwargs"]["max_new_tokens"] for kind in (*OPEN, "single_mc")]

    assert limits() == [50] * 4 + [16]
    monkeypatch.setenv("MAX_GENERATED_TOKENS", "1500")
    assert limits() == [1500] * 4 + [16]


def test_ours_win_over_lmms_eval_s(monkeypatch):
    class Manager:
        task_index = {"videott_no_leading_oe": {"type": "task", "yaml_path": "stock"}, "other": {}}  # noqa: RUF012

    monkeypatch.setattr(evaluator, "get_task_dict", lambda names, manager, kind: manager.task_index)
    precedence.our_tasks_first()
    precedence.our_tasks_first()
    index = evaluator.get_task_dict([], Manager(), "chat")
    assert index["videott_no_leading_oe"]["yaml_path"] == precedence.replaced()["videott_no_leading_oe"]
    assert index["other"] == {}


def test_a_video_is_found_where_stock_unpacks_it_and_a_missing_one_is_an_exception(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="the video v1 "):
        task.doc_to_visual(DOC)
    folder = tmp_path / "video-tt" / "Benchmark-AllVideos-LQ"
    folder.mkdir(parents=True)
    (folder / "v1.mkv").touch()
    assert task.doc_to_visual(DOC) == [str(folder / "v1.mkv")]


def test_letters_are_read_as_in_stock():
    assert [task.choice_results(DOC, [answer])["videott_perception_score"] for answer in ("The answer is B.", "A")] == [
        100.0,
        0.0,
    ]


def test_scoring_asks_nobody(monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *args: pytest.fail("a request was sent"))
    monkeypatch.setenv("GPT_EVAL_MODEL_NAME", "judge")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    entry = config("videott_no_leading_oe")["process_results"](DOC, ["B"])[scoring.METRIC]
    assert "score" not in entry


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        ({}, "which needs OPENAI_API_KEY and GPT_EVAL_MODEL_NAME; "),
        ({"OPENAI_API_KEY": "sk-1"}, "which needs GPT_EVAL_MODEL_NAME; "),
        ({"OPENAI_API_KEY": "sk-1", "GPT_EVAL_MODEL_NAME": "m"}, None),
        ({"OPENAI_API_URL": "http://localhost:8000/v1", "GPT_EVAL_MODEL_NAME": "m"}, None),
        ({"KV_JUDGE": "exact"}, None),
        ({"KV_JUDGE": "none"}, None),
        ({"KV_JUDGE": "exat"}, "KV_JUDGE=exat is unknown"),
    ],
)
def test_who_judges_is_settled_before_a_model_is_loaded(env, problem, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_API_URL", "GPT_EVAL_MODEL_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    wanted = needs.of(["videott_paraphrase_oe", "mini_scene"])
    assert [need.judged for need in wanted.values()] == [True, False]
    found = list(checks._judges(wanted))
    assert len(found) == (problem is not None)
    if problem is not None:
        assert problem in found[0]
        assert "\n" not in found[0]
    others = list(checks._judges(needs.of(["videott_single_mc"])))
    assert others == (found if "unknown" in (problem or "") else [])

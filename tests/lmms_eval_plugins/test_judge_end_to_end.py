"""Video-TT by its stock name on a data set of two videos: answers, then a judge, then the same from the stores."""

import json

import datasets
import numpy as np
import pandas as pd
import pytest

from lmms_eval_plugins import sweep
from lmms_eval_plugins.judge import __main__ as judge
from lmms_eval_plugins.judge.scoring import METRIC
from lmms_eval_plugins.tasks.mini_video.dataset import write_video

from . import processes
from .stub_judge import GOOD, says, serving

KEY = "sk-very-secret-0123456789"
TASK = "videott_no_leading_oe"
LABELS = ["full", "tgv_kv-0.50"]


@pytest.fixture
def place(tmp_path):
    """The data set where `datasets` finds it instead of the hub's, and the videos where lmms-eval unpacks them."""
    data = tmp_path / "lmms-eval" / "video-tt" / "data"
    data.mkdir(parents=True)
    doc = {"question": "What is it?", "question_prompt": "Shortly.", "answer": "red", "capability": "Plot Attribute"}
    rows = pd.DataFrame([doc | {"video_id": f"v{number}"} for number in range(2)])
    rows.to_parquet(data / "test_no_leading_oe-00000-of-00001.parquet")
    videos = tmp_path / "hf" / "video-tt" / "Benchmark-AllVideos-LQ"
    videos.mkdir(parents=True)
    for number in range(2):
        noise = np.random.default_rng(number).integers(0, 255, (4, 64, 64, 3), dtype=np.uint8)
        write_video(videos / f"v{number}.mp4", noise, 2.0)
    return tmp_path


def test_answers_then_verdicts_then_both_from_the_stores(place, site, checkpoint, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", place / "hf" / "datasets")  # HF_HOME was read at import
    base = {"HF_HOME": str(place / "hf"), "KV_RECORDS_DIR": "records", "NO_PROXY": "127.0.0.1", "OPENAI_API_KEY": KEY}
    base |= {"MAX_GENERATED_TOKENS": "60", "KV_JUDGE_BACKOFF": "0.01", "GPT_EVAL_MODEL_NAME": "judge"}
    model = f"pretrained={checkpoint('qwen3_vl')},device_map=cpu,max_num_frames=2"
    answer = ["--sweep", "paper", "--methods", "tgv_kv", "--retention", "0.5", "--model", "qwen3_vl"]
    answer += ["--model_args", model, "--tasks", TASK, "--output_path", "out"]

    def run(command, arguments, **env):
        done = processes.run(command.main, arguments, site.environment | base | env, place)
        assert done.status == 0, done
        assert KEY not in done.output + done.errors
        return done.output

    def results():
        return [json.loads((place / "out" / label / f"result.{TASK}.json").read_text()) for label in LABELS]

    with serving([says(GOOD)]) as server:
        address = {"OPENAI_API_URL": server.url}
        run(sweep, answer, **address)
        assert server.requests == []
        for found in results():
            assert (found["metrics"][f"{METRIC},none"], found["counts"]["unjudged"]) == (None, 2)
            assert (found["max_new_tokens"], found["means"]["answer_tokens"]) == (60, 60.0)
        run(judge, ["out", "--yes"], **address)
        asked = len(server.requests)
        assert 0 < asked <= 4
        judged = results()
        assert [found["metrics"][f"{METRIC},none"] for found in judged] == [100.0, 100.0]
        assert "computing" not in run(sweep, answer, **address)
        run(judge, ["out"], **address)
        assert len(server.requests) == asked
    same = ("metrics", "counts", "judge", "difference_to_full")
    assert [{name: found[name] for name in same} for found in results()] == [
        {name: found[name] for name in same} for found in judged
    ]
    assert not [path for path in place.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]

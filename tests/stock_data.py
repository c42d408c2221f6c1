"""The data sets that lmms-eval's stock tasks read, with their columns, splits and configurations, and few documents."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import yaml
from datasets import Dataset, Features, Image, List, Value

from tests.lmms_eval_plugins.toy import picture, video

TEXT, NUMBER = Value("string"), Value("int64")
DOCUMENTS = 2
IMAGE_TASKS = ("chartqa", "docvqa_val", "vizwiz_vqa_val", "textvqa_val", "textcaps_val", "coco2017_cap_val")
VIDEO_TASKS = tuple(
    f"videott_{kind}"
    for kind in ("no_leading_oe", "paraphrase_oe", "wrong_leading_oe", "correct_leading_oe", "single_mc")
)
_OWNER = "lmms-lab-encoder"
_OPEN_SPLITS = ("no_leading_oe", "paraphrased_oe", "wrongly_led_oe", "correctly_led_oe")
_CAPTIONS = ["a red square on a page", "there is a square", "a square is red", "one page with a square", "red square"]


def repositories(folder: Path) -> dict[str, dict[str, bytes]]:
    """All of them as the hub has them: by repository, its files.

    Args:
        folder: where videos are made.
    """
    return {
        f"{_OWNER}/ChartQA": _repository({("default", "test"): _chartqa}),
        f"{_OWNER}/DocVQA": _repository({("DocVQA", "validation"): _docvqa, ("InfographicVQA", "validation"): _docvqa}),
        f"{_OWNER}/VizWiz-VQA": _repository({("default", "val"): _vizwiz}),
        f"{_OWNER}/textvqa": _repository({("default", "validation"): _textvqa}),
        f"{_OWNER}/TextCaps": _repository({("default", "val"): _textcaps}),
        f"{_OWNER}/COCO-Caption2017": _repository({("default", "val"): _coco}),
        "lmms-eval/video-tt": _video_tt(folder),
    }


def _repository(splits: dict[tuple[str, str], Any]) -> dict[str, bytes]:
    """Files of a repository, from (configuration, split) to a function that makes one document."""
    files, configs, infos = {}, {}, {}
    for (config, split), make in splits.items():
        path = f"{config}/{split}-00000-of-00001.parquet"
        files[path] = _parquet(make)
        configs.setdefault(config, []).append({"split": split, "path": f"{config}/{split}-*"})
        size = {"name": split, "num_bytes": len(files[path]), "num_examples": DOCUMENTS}
        infos.setdefault(config, []).append(size)
    card = {
        "configs": [{"config_name": name, "data_files": found} for name, found in configs.items()],
        "dataset_info": [{"config_name": name, "splits": found} for name, found in infos.items()],
    }
    return {"README.md": f"---\n{yaml.safe_dump(card)}---\n".encode(), **files}


def _parquet(make: Any) -> bytes:
    rows = [make(number) for number in range(DOCUMENTS)]
    features = Features({name: kind for name, (kind, _) in rows[0].items()})
    data = Dataset.from_list([{name: value for name, (_, value) in row.items()} for row in rows], features=features)
    buffer = io.BytesIO()
    data.to_parquet(buffer)
    return buffer.getvalue()


def _chartqa(i: int) -> dict[str, Any]:
    return {
        "type": (TEXT, ("human_test", "augmented_test")[i % 2]),
        "question": (TEXT, f"How high is bar {i}?"),
        "answer": (TEXT, str(10 * i + 1)),
        "image": (Image(), picture(i)),
    }


def _docvqa(i: int) -> dict[str, Any]:
    return {
        "questionId": (TEXT, str(100 + i)),
        "question": (TEXT, "What is the date?"),
        "question_types": (List(TEXT), ["form"]),
        "image": (Image(), picture(10 + i)),
        "docId": (NUMBER, i),
        "ucsf_document_id": (TEXT, f"d{i}"),
        "ucsf_document_page_no": (TEXT, "1"),
        "answers": (List(TEXT), ["1/8/93", "January 8"]),
        "data_split": (TEXT, "val"),
    }


def _vizwiz(i: int) -> dict[str, Any]:
    return {
        "question_id": (TEXT, f"VizWiz_val_{i:08}"),
        "image": (Image(), picture(20 + i)),
        "question": (TEXT, "what is this?"),
        "answers": (List(TEXT), ["can", "soda can", *["can"] * 8]),
        "category": (TEXT, "other"),
    }


def _textvqa(i: int) -> dict[str, Any]:
    return {
        "image_id": (TEXT, f"i{i}"),
        "question_id": (NUMBER, 34602 + i),
        "question": (TEXT, "what is written?"),
        "question_tokens": (List(TEXT), ["what", "is", "written"]),
        "image": (Image(), picture(30 + i)),
        "ocr_tokens": (List(TEXT), ["stop"]),
        "answers": (List(TEXT), ["stop"] * 10),
        "set_name": (TEXT, "val"),
    }


def _textcaps(i: int) -> dict[str, Any]:
    return {
        "question_id": (TEXT, str(i)),
        "question": (TEXT, "Please carefully observe the image and come up with a caption for the image"),
        "image": (Image(), picture(40 + i)),
        "image_id": (TEXT, f"t{i}"),
        "caption_id": (List(NUMBER), list(range(5))),
        "caption_str": (List(TEXT), _CAPTIONS),
        "reference_strs": (List(TEXT), _CAPTIONS),
    }


def _coco(i: int) -> dict[str, Any]:
    return {
        "question_id": (TEXT, f"{i:012}.jpg"),
        "image": (Image(), picture(50 + i)),
        "question": (TEXT, "Please carefully observe the image and come up with a caption for the image"),
        "answer": (List(TEXT), _CAPTIONS),
        "id": (NUMBER, i),
        "license": (NUMBER, 4),
        "file_name": (TEXT, f"{i:012}.jpg"),
    }


def _video_tt(folder: Path) -> dict[str, bytes]:
    choice = {("default", "test"): lambda i: _question(i, "B", "(A) up (B) down (C) left (D) right")}
    open_ended = {("default", f"test_{split}"): lambda i: _question(i, "It falls.", "") for split in _OPEN_SPLITS}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as videos:
        for i in range(DOCUMENTS):
            videos.write(video(folder / f"v{i}.mp4"), f"Benchmark-AllVideos-LQ/v{i}.mp4")
    return _repository(choice | open_ended) | {"Benchmark-AllVideos-LQ.zip": archive.getvalue()}


def _question(i: int, answer: str, prompt: str) -> dict[str, Any]:
    return {
        "qid": (TEXT, f"{i:04}-0"),
        "video_id": (TEXT, f"v{i}"),
        "duration": (TEXT, "3"),
        "capability": (TEXT, "Plot Attribute"),
        "question": (TEXT, "What does it do?"),
        "question_prompt": (TEXT, prompt),
        "answer": (TEXT, answer),
    }

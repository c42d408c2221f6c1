"""A task without lmms-eval around it: documents, requests in both layouts, and a wrapper to answer them."""

import importlib
import itertools
import json
import os
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from lmms_eval.api.instance import Instance
from PIL import Image

from lmms_eval_plugins.manifest import MODELS

from .checkpoints import lmms_name

TASK, SPLIT = "toy", "test"
GREEDY = {"max_new_tokens": 10, "temperature": 0, "do_sample": False, "until": ["\n\n"]}
SMALL_PICTURES = {"min_pixels": 4 * 32 * 32, "max_pixels": 16 * 32 * 32, "max_num_frames": 8}


class ToyTask:
    """Has of lmms-eval's tasks what requests hold on to."""

    def __init__(self, docs: list[dict[str, Any]]):
        self.docs = docs
        self.instances: list[Instance] = []

    def doc_to_visual(self, doc: dict[str, Any]) -> list[Image.Image]:
        if doc.get("broken"):
            raise OSError("picture cannot be read")
        return doc["images"]

    def doc_to_messages(self, doc: dict[str, Any]) -> list[dict[str, Any]]:
        kinds = {True: "video", False: "image"}
        pictures = [{"type": kinds[isinstance(v, str)], "url": v} for v in self.doc_to_visual(doc)]
        return [{"role": "user", "content": [*pictures, {"type": "text", "text": doc["text"]}]}]

    def requests(self, chat: bool, gen_kwargs: list[dict[str, Any]] | dict[str, Any] = GREEDY) -> list[Instance]:
        self.instances = []
        for i, doc in enumerate(self.docs):
            kwargs = dict(gen_kwargs[i] if isinstance(gen_kwargs, list) else gen_kwargs)
            middle = (self.doc_to_messages, kwargs) if chat else (kwargs, self.doc_to_visual)
            arguments = (doc["text"], *middle, i, TASK, SPLIT)
            metadata = {"task": TASK, "doc_id": i, "repeats": 1}
            self.instances.append(Instance("generate_until", arguments, idx=0, metadata=metadata))
        return list(self.instances)


def picture(seed: int, width: int = 96, height: int = 64) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((width, height))


def video(
    path: Path, frames: int = 12, codec: str = "mpeg4", pixels: str = "yuv420p", options: dict[str, str] | None = None
) -> str:
    """Writes a short video and returns its path; `options` are those of the container."""
    with av.open(str(path), "w", options=options or {}) as container:
        stream = container.add_stream(codec, rate=4)
        stream.width, stream.height, stream.pix_fmt = 64, 64, pixels
        for i in range(frames):
            container.mux(stream.encode(av.VideoFrame.from_image(picture(i, 64, 64))))
        container.mux(stream.encode())
    return str(path)


def documents() -> list[dict[str, Any]]:
    """Texts and pictures of different sizes, so that a batch of them is padded."""
    return [
        {"text": "what is this?", "images": [picture(0)]},
        {"text": "please describe the picture in front of you, slowly.", "images": [picture(1, 64, 96)]},
        {"text": "colour?", "images": [picture(2, 64, 64)]},
        {"text": "how many things can you see in this picture?", "images": [picture(3, 128, 64)]},
    ]


_stores = itertools.count()


def wrapper(checkpoint: Path, kind: str = "chat", store: Path | None = None, **args: Any) -> Any:
    """The wrapper that lmms-eval would make for a checkpoint, on the CPU.

    Args:
        store: folder of its records; a new one below the test's own, so that every answer is computed.
    """
    model_type = json.loads((checkpoint / "config.json").read_text())["model_type"]
    name = lmms_name(model_type)
    module = importlib.import_module(f"lmms_eval_plugins.models.{name}")
    cls = getattr(module, MODELS[name] + kind.capitalize())
    pixels = {} if name == "llava_hf" else SMALL_PICTURES
    folder = store or Path(os.environ["KV_RECORDS_DIR"]) / str(next(_stores))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KV_RECORDS_DIR", str(folder))
        return cls(**{"pretrained": str(checkpoint), "device_map": "cpu", **pixels, **args})


def ask(model: Any, task: ToyTask, gen_kwargs: Any = GREEDY) -> list[str]:
    """The answers to a task's documents."""
    model.task_dict = {TASK: {SPLIT: task.docs}}
    return [result.text for result in model.generate_until(task.requests(not model.is_simple, gen_kwargs))]


def records(folder: Path) -> list[dict[str, Any]]:
    """All records below a folder, in the order of writing."""
    lines = [line for path in sorted(folder.rglob("records.rank*.jsonl")) for line in path.read_text().splitlines()]
    return sorted(map(json.loads, lines), key=lambda record: record["time"])

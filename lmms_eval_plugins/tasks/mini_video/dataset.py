"""The videos and questions on disk: one lossless file a video, and a split for each way to ask about it.

`lmms_eval_plugins.tasks.mini_video.dataset.path` is the folder; reading the name makes it if it is not there.
"""

from functools import cache
from pathlib import Path

import av
import numpy as np
from datasets import Dataset, DatasetDict, Features, Sequence, Value

import tiny_vlm
from lmms_eval_plugins.tasks import on_disk
from tiny_vlm.video.data import KINDS, VideoSample, make_samples

SAMPLES = 200
SPLITS = {
    "primary": "question",
    "paraphrase": "paraphrase",
    "wrong_leading": "wrong_leading",
    "correct_leading": "correct_leading",
    "mc": "multiple_choice",
}
"""Split of the dataset -> the field of a sample that is asked."""
LETTERS = "ABCD"
_LAYOUT = "1"
_FEATURES = Features(
    {
        "video_id": Value("string"),
        "capability": Value("string"),
        "question": Value("string"),
        "answer": Value("string"),
        "answers": Sequence(Value("string")),
        "letter": Value("string"),
    }
)
_GENERATOR = ("glyphs.npz", "glyphs.py", "rng.py", "video/data.py", "video/questions.py", "video/render.py")
_GENERATOR += ("video/world.py",)


def __getattr__(name: str) -> str:
    if name != "path":
        raise AttributeError(name)
    return str(dataset_dir())


def dataset_dir() -> Path:
    """The folder of the dataset, made if needed."""
    return on_disk.folder(f"video-test-{SAMPLES}-{generator_version()}", lambda folder: make(folder, SAMPLES))


def video_path(video_id: str) -> Path:
    """Where a video of the dataset lies."""
    return dataset_dir() / "videos" / f"{video_id}.mp4"


def make(folder: Path, n: int) -> None:
    """Fills a folder with `n` held-out samples, the kinds in turn."""
    share = -(-n // len(KINDS))
    kinds = [[(kind, sample) for sample in make_samples(kind, "test", share)] for kind in KINDS]
    samples = [one for row in zip(*kinds, strict=True) for one in row][:n]
    splits = {
        split: Dataset.from_list([_row(kind, sample, field) for kind, sample in samples], features=_FEATURES)
        for split, field in SPLITS.items()
    }
    DatasetDict(splits).save_to_disk(folder)
    (folder / "videos").mkdir()
    for _, sample in samples:
        write_video(folder / "videos" / f"{sample.id}.mp4", sample.frames, sample.fps)


def _row(kind: str, sample: VideoSample, field: str) -> dict[str, object]:
    return {
        "video_id": sample.id,
        "capability": kind,
        "question": getattr(sample, field),
        "answer": sample.answer,
        "answers": list(sample.answers),
        "letter": LETTERS[sample.correct],
    }


def write_video(path: Path, frames: np.ndarray, fps: float) -> None:
    """Writes frames (T, H, W, 3) such that every reader gets back exactly these: H.264 in RGB without loss."""
    options = {"qp": "0", "preset": "veryfast", "threads": "1"}
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264rgb", rate=round(fps), options=options)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "rgb24"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame)))
        container.mux(stream.encode())


@cache
def generator_version() -> str:
    """A hash of everything that draws and words the samples."""
    return on_disk.version(_LAYOUT, (Path(tiny_vlm.__file__).parent / name for name in _GENERATOR))

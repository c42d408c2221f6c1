"""The samples as datasets on disk.

`lmms_eval_plugins.tasks.mini.dataset.document_path` (and `chart_path`, ...) is the folder of that dataset: reading the
name makes it if it is not there, so a task file can name it as its `dataset_path`.
"""

from functools import cache
from pathlib import Path

from datasets import Dataset, DatasetDict, Features, Image, Sequence, Value

import tiny_vlm
from lmms_eval_plugins.tasks import on_disk
from tiny_vlm.data import KINDS, make_samples

SAMPLES = 200
SPLIT = "test"
_LAYOUT = "1"
_FEATURES = Features(
    {
        "id": Value("string"),
        "image": Image(),
        "question": Value("string"),
        "answers": Sequence(Value("string")),
        "objects": Sequence(Value("string")),
    }
)
_GENERATOR = ("canvas.py", "data.py", "glyphs.npz", "glyphs.py", "pages.py", "rng.py", "wording.py")


def __getattr__(name: str) -> str:
    kind = name.removesuffix("_path")
    if kind == name or kind not in KINDS:
        raise AttributeError(name)
    return str(dataset_dir(kind))


def dataset_dir(kind: str) -> Path:
    """The folder of a kind's dataset, made if needed."""

    def make(folder: Path) -> None:
        make_dataset(kind, SAMPLES).save_to_disk(folder, max_shard_size="1GB")

    return on_disk.folder(f"{kind}-{SPLIT}-{SAMPLES}-{generator_version()}", make)


def make_dataset(kind: str, n: int) -> DatasetDict:
    """The first `n` held-out samples of a kind."""
    rows = [
        {
            "id": sample.id,
            "image": sample.image,
            "question": sample.question,
            "answers": list(sample.answers),
            "objects": list(sample.objects),
        }
        for sample in make_samples(kind, SPLIT, n)
    ]
    return DatasetDict({SPLIT: Dataset.from_list(rows, features=_FEATURES)})


@cache
def generator_version() -> str:
    """A hash of everything that draws and words the samples."""
    return on_disk.version(_LAYOUT, (Path(tiny_vlm.__file__).with_name(name) for name in _GENERATOR))

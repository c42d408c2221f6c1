"""The samples as datasets on disk, made on first use.

`lmms_eval_plugins.tasks.mini.dataset.document_path` (and `chart_path`, ...) is the folder of that dataset: reading the
name makes it if it is not there, so a task file can name it as its `dataset_path`. Folders are named after a hash of
the generator, so a changed generator never meets old samples.
"""

import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from datasets import Dataset, DatasetDict, Features, Image, Sequence, Value

import tiny_vlm
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
    """The folder of a kind's dataset, made if needed; several processes may ask at once."""
    target = cache_dir() / f"{kind}-{SPLIT}-{SAMPLES}-{generator_version()}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=target.parent))
        make_dataset(kind, SAMPLES).save_to_disk(temporary, max_shard_size="1GB")
        try:
            temporary.rename(target)
        except OSError:
            if not target.is_dir():
                raise
            shutil.rmtree(temporary)  # Another process was faster.
    return target


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


def cache_dir() -> Path:
    """Below the user's cache, or in the temporary folder where that cannot be written."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mini_vlm"
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / f"mini_vlm-{os.getuid()}"
    return home if os.access(home, os.W_OK) else Path(tempfile.gettempdir()) / f"mini_vlm-{os.getuid()}"


@cache
def generator_version() -> str:
    """A hash of everything that draws and words the samples."""
    digest = hashlib.sha256(_LAYOUT.encode())
    for name in _GENERATOR:
        digest.update(Path(tiny_vlm.__file__).with_name(name).read_bytes())
    return digest.hexdigest()[:12]

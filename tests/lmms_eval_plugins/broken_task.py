"""A task of which the second sample cannot be read."""

from pathlib import Path

from lmms_eval_plugins.tasks import mini

_TASK = """\
include: {template}
task: broken_scene
dataset_path: !function lmms_eval_plugins.tasks.mini.dataset.scene_path
doc_to_visual: !function broken.doc_to_visual
process_results: !function lmms_eval_plugins.tasks.mini.scoring.scene_results
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""
_CODE = """\
def doc_to_visual(doc):
    if doc["id"].endswith("1"):
        raise OSError("picture cannot be read")
    return [doc["image"]]
"""


def write(folder: Path) -> Path:
    """Writes the task, `broken_scene`, into a new folder for `--include_path`."""
    folder.mkdir()
    template = Path(mini.__file__).with_name("_mini_template_yaml")
    (folder / "broken.yaml").write_text(_TASK.format(template=template))
    (folder / "broken.py").write_text(_CODE)
    return folder

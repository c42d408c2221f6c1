"""How models, tasks and metrics are called on the page, and which metric of a task counts."""

from __future__ import annotations

from fnmatch import fnmatch

MODELS = {
    "llava-7B": "LLaVA-1.5 7B",
    "llava-next": "LLaVA-NeXT Mistral 7B",
    "llava-ov-0.5B": "LLaVA-OneVision 0.5B",
    "qwen-4B": "Qwen3-VL 4B",
    "qwen-8B": "Qwen3-VL 8B",
    "tiny-vlm": "embedded tiny VLM",
}
METRICS = {
    "anls": "ANLS",
    "object_f1": "object F1",
    "relaxed_overall": "relaxed accuracy",
    "videott_open_ended_score": "answers judged right",
    "textcaps_CIDEr": "CIDEr",
    "coco_CIDEr": "CIDEr",
}
TASKS = {
    "videott_no_leading_oe": "Video-TT primary",
    "videott_paraphrase_oe": "Video-TT rephrased",
    "videott_wrong_leading_oe": "Video-TT wrongly led",
    "videott_correct_leading_oe": "Video-TT correctly led",
    "chartqa": "ChartQA",
    "docvqa_val": "DocVQA",
    "vizwiz_vqa_val": "VizWiz",
    "textvqa_val": "TextVQA",
    "textvqa_val_lite": "TextVQA-lite",
    "textcaps_val": "TextCaps",
    "coco2017_cap_val": "COCO-Caption",
}
_COUNTS = ("relaxed_overall", "*CIDEr", "videott_*score", "anls", "exact_match")
"""Where a task reports several metrics, the one its tables give; by order."""


def model_name(model: str) -> str:
    """A `MODEL_TYPE` or checkpoint in words, with what tells its runs apart."""
    base = base_model(model)
    return MODELS.get(base, base) + model.removeprefix(base)


def base_model(model: str) -> str:
    """A model's name without what tells its runs apart, see `setups`: `llava-7B` of `llava-7B [chat prompts]`."""
    return model.partition(" [")[0] if model.endswith("]") else model


def task_name(task: str) -> str:
    """A task as a column head."""
    return TASKS.get(task, task.removeprefix("mini_").replace("_", " "))


def metric_name(metric: str) -> str:
    """A metric as an axis label."""
    return METRICS.get(metric, metric.replace("_", " "))


def configuration_name(method: str, variant: str, decode: str) -> str:
    """What tells a configuration from others at the same budget: `tgv_kv (official, evict)`."""
    parts = [variant] * (variant != "paper") + [decode] * (decode != "append")
    return f"{method} ({', '.join(parts)})" if parts else method


def main_metric(names: list[str]) -> str:
    """The metric that counts, of those a task reports; the first unless another is the custom."""
    for pattern in _COUNTS:
        for name in names:
            if fnmatch(name, pattern):
                return name
    return names[0]

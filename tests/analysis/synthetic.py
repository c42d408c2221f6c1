"""A results folder as large as a whole study: models x configurations x tasks, with per-sample records."""

from __future__ import annotations

import json
import random
from pathlib import Path

TEMPLATE = Path(__file__).parent / "fixture" / "next" / "tgv_kv-0.95" / "result.vizwiz_vqa_val.json"
MODELS = ("llava-7B", "llava-next", "llava-ov-0.5B", "qwen-4B", "qwen-8B")
METHODS = ("tgv_kv", "h2o", "snapkv", "streaming_llm", "elastic_cache", "prefix_kv", "pyramid_kv")
TASKS = (
    "chartqa",
    "docvqa_val",
    "vizwiz_vqa_val",
    "textvqa_val",
    "textcaps_val",
    "coco2017_cap_val",
    "videott_no_leading_oe",
    "videott_paraphrase_oe",
    "videott_wrong_leading_oe",
    "videott_correct_leading_oe",
)
CONFIGURATIONS = [("full", 1.0), *((method, share) for method in METHODS for share in (0.5, 0.2, 0.1, 0.05))]


def write(folder: Path, samples: int = 20) -> None:
    """Result files and records of all of them."""
    template, draw = json.loads(TEMPLATE.read_text()), random.Random(0)
    for model in MODELS:
        for number, (method, share) in enumerate(CONFIGURATIONS):
            fingerprint = f"v1-{MODELS.index(model):08x}{number:08x}"
            run = folder / model / f"{method}-{1 - share:.2f}"
            run.mkdir(parents=True)
            config = template["config"] | {"method": method, "retention": share, "model_type": model}
            for task in TASKS:
                score = round(0.8 * share**0.2 * draw.uniform(0.9, 1), 4)
                content = template | {"task": task, "fingerprint": fingerprint, "config": config, "model": model}
                content["retention"] = {"nominal": share, "mean": share, "min": share, "max": share}
                content["metrics"] = {"exact_match,none": score, "exact_match_stderr,none": 0.02}
                difference = {"mean": score - 0.8, "low": score - 0.84, "high": score - 0.76}
                content["difference_to_full"] = {"exact_match": difference}
                (run / f"result.{task}.json").write_text(json.dumps(content))
            _records(folder / model / "records" / fingerprint, fingerprint, share, samples)


def _records(folder: Path, fingerprint: str, share: float, samples: int) -> None:
    folder.mkdir(parents=True)
    with (folder / "records.rank0.jsonl").open("w") as file:
        for task in TASKS:
            for doc in range(samples):
                kept = [round(600 * share, 1)] * 32
                proof = {"kept_text": kept, "kept_vision": kept, "retention_achieved": share}
                proof |= {"kv_bytes_kept": 1, "kv_bytes_full": 2, "prompt_tokens": 9}
                record = {"task": task, "doc_id": doc, "repeat": 0, "status": "ok", "answer": f"a {doc}"}
                record |= {
                    "error": None,
                    "prompt_hash": f"{doc:04x}",
                    "answer_tokens": 3,
                    "seconds": 0.1,
                    "timing": "shared",
                    "eviction": proof,
                    "time": 1.0,
                }
                file.write(json.dumps(record | {"schema": 2, "fingerprint": fingerprint}) + "\n")

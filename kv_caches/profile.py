"""python -m kv_caches.profile: measure PrefixKV's layer shares on calibration prompts, one file per ratio.

The published protocol (THU-MIG/PrefixKV): search the common coverage of each prompt, average what the layers forget.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from .config import KVConfig
from .engine import attach
from .errors import ConfigError, nearest

DTYPES = ("auto", "float32", "float16", "bfloat16")
MADE_BY = "python -m kv_caches.profile"


@torch.no_grad()
def measure(model: Any, prompts: Iterable[dict[str, Any]], retention: float) -> dict[str, Any]:
    """A profile: the mean share of the prompt that every layer forgets at ``retention``.

    Args:
        prompts: model inputs, tensors on the model's device; a batch must be padded on the left.
    """
    shares: list[list[float]] = []
    with attach(model, KVConfig(method="prefix_kv", variant="online", retention=retention)) as attachment:
        for inputs in prompts:
            model(**inputs, use_cache=True)
            lengths = [record["prompt_tokens"] for record in attachment.take_records()]
            for length, layers in zip(lengths, attachment.kept):
                shares.append([1 - sets[0].numel() / length for sets in layers])
    if not shares:
        raise ConfigError("no prompt to measure: the prompts file is empty")
    evicted = [sum(layer) / len(shares) for layer in zip(*shares)]
    return {"made_by": MADE_BY, "retention": retention, "prompts": len(shares), "evicted": evicted}


def write(profile: dict[str, Any], folder: Path) -> Path:
    """Write ``<retention>.json``, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{profile['retention']:g}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(profile, indent=1) + "\n")
    part.replace(path)
    return path


def read_prompts(path: Path, limit: int | None = None) -> list[dict[str, Any]]:
    """Lines of ``{"prompt": "...", "images": ["file", ...]}``; image paths are relative to the file.

    Raises:
        ConfigError: no such file, or a line that is not such an object.
    """
    if not path.is_file():
        raise ConfigError(f"--prompts {path}: no such file")
    prompts = []
    for number, line in enumerate(path.read_text().splitlines()[:limit], 1):
        try:
            entry = json.loads(line)
            text, images = str(entry["prompt"]), [path.parent / image for image in entry.get("images", [])]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(f'--prompts {path}: line {number} must be {{"prompt": "...", "images": [...]}}') from None
        missing = [str(image) for image in images if not image.is_file()]
        if missing:
            raise ConfigError(f"--prompts {path}: line {number}: {missing[0]} does not exist")
        prompts.append({"prompt": text, "images": images})
    if not prompts:
        raise ConfigError(f"--prompts {path}: there is no line in it")
    return prompts


def encode(processor: Any, prompts: list[dict[str, Any]], device: torch.device) -> Iterator[dict[str, Any]]:
    """Model inputs of one prompt after the other, by the processor's chat template."""
    from PIL import Image

    for entry in prompts:
        images = [Image.open(path).convert("RGB") for path in entry["images"]]
        content = [*({"type": "image"} for _ in images), {"type": "text", "text": entry["prompt"]}]
        text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
        media = {"images": images} if images else {}
        yield dict(processor(text=[text], return_tensors="pt", **media).to(device))


def check(args: argparse.Namespace) -> None:
    """What both commands take, before a model is loaded.

    Raises:
        ConfigError: one line on what cannot be.
    """
    if args.limit is not None and args.limit < 1:
        raise ConfigError(f"--limit {args.limit}: a whole number from 1 is needed")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", args.device):
        raise ConfigError(f"--device {args.device}: cpu, cuda or cuda:<n> is needed")
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"--device {args.device}: there is no CUDA device on this machine; use cpu")
    if args.dtype not in DTYPES:
        raise ConfigError(
            f"--dtype {args.dtype} is unknown; allowed: {', '.join(DTYPES)}.{nearest(args.dtype, DTYPES)}"
        )
    try:
        args.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--output {args.output}: cannot be written: {error.strerror}") from error


def load(args: argparse.Namespace) -> tuple[Any, Any]:
    """Processor and model of `--model`.

    Raises:
        ConfigError: there is none.
    """
    from transformers import AutoModelForImageTextToText, AutoProcessor

    try:
        processor = AutoProcessor.from_pretrained(args.model)
        model = AutoModelForImageTextToText.from_pretrained(args.model, dtype=args.dtype).to(args.device).eval()
    except (OSError, ValueError) as error:
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        raise ConfigError(f"--model {args.model}: no checkpoint that can be loaded: {reason}") from error
    return processor, model


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog=MADE_BY, description=(__doc__ or "").split(": ", 1)[1])
    parser.add_argument("--model", required=True, help="checkpoint folder or hub id")
    parser.add_argument("--prompts", required=True, type=Path, help='lines of {"prompt": "...", "images": ["file"]}')
    parser.add_argument("--output", required=True, type=Path, help="folder; one <retention>.json per ratio, KV_PROFILE")
    parser.add_argument("--retention", required=True, type=float, nargs="+", help="share kept, e.g. 0.05 0.1 0.2 0.5")
    parser.add_argument("--limit", type=int, help="use only the first prompts")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="auto", help="as in from_pretrained")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Measure and write the profiles; prints their paths."""
    args = arguments(argv)
    try:
        for retention in args.retention:
            KVConfig(method="prefix_kv", variant="online", retention=retention)
        check(args)
        prompts = read_prompts(args.prompts, args.limit)
        processor, model = load(args)
        for retention in args.retention:
            profile = measure(model, encode(processor, prompts, model.device), retention)
            print(write(profile | {"model": args.model}, args.output))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""KV_RECORD_KEPT=1: beside the records, what the prompt was made of, so that what was kept can be drawn.

<KV_RECORDS_DIR>/prompts/<name>.json    tokens, and every picture's grid of tokens and file; records say the name
<KV_RECORDS_DIR>/prompts/<name>.<n>.jpg the pictures as the model saw them
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from PIL import Image
from transformers import BatchFeature

from kv_caches.prompt import Prompt, split_batch, vision_token_ids
from kv_caches.values import switch
from lmms_eval_plugins.pictures import Block, blocks
from lmms_eval_plugins.records import base_dir, write_json

SCHEMA = 1


def wanted(env: Mapping[str, str] = os.environ) -> bool:
    """KV_RECORD_KEPT.

    Raises:
        ConfigError: neither 0 nor 1.
    """
    return switch("KV_RECORD_KEPT", env)


def write_prompts(batch: BatchFeature, names: Sequence[str], processor: Any, config: Any) -> list[str]:
    """Write the prompts of a batch, those that are not there yet.

    Args:
        names: one per sample; the hash of the token ids is added.

    Returns:
        The names under which they are.
    """
    ids, mask = batch["input_ids"].cpu(), batch["attention_mask"].cpu().bool()
    prompts = split_batch(ids, mask, vision_token_ids(config))
    images, frames = blocks(batch, processor, config)
    folder = base_dir() / "prompts"
    written, video_ids = [], _video_ids(config)
    for row, real, prompt, name in zip(ids, mask, prompts, names, strict=True):
        mine = row[real].tolist()
        placed, at = [], 0
        while at < len(mine):
            if not prompt.is_vision[at]:
                at += 1
                continue
            block = next(frames if mine[at] in video_ids else images)
            placed.append((at, block))
            at += block.tokens
        name = f"{name}-{prompt.seed:016x}"
        if not (folder / f"{name}.json").is_file():
            _write(folder, name, mine, prompt, placed, processor)
        written.append(name)
    return written


def _video_ids(config: Any) -> set[int]:
    found = (getattr(config, key, None) for key in ("video_token_id", "video_token_index"))
    return {value for value in found if value is not None}


def _texts(tokenizer: Any, ids: list[int]) -> list[str]:
    """Every token's letters, with the space that decoding puts between it and the one before."""
    alone = tokenizer.batch_decode([[token] for token in ids])
    pairs = tokenizer.batch_decode([list(pair) for pair in pairwise(ids)])
    found = zip(alone, alone[1:], pairs)
    return alone[:1] + [pair[len(first) :] if pair.startswith(first) else second for first, second, pair in found]


def _write(
    folder: Path, name: str, ids: list[int], prompt: Prompt, placed: list[tuple[int, Block]], processor: Any
) -> None:
    if sum(block.tokens for _, block in placed) != int(prompt.is_vision.sum()):
        raise ValueError(f"{name}: the pictures have other sizes than the prompt has vision tokens")
    folder.mkdir(parents=True, exist_ok=True)
    described = []
    for number, (start, block) in enumerate(placed):
        file = f"{name}.{number}.jpg"
        data = io.BytesIO()
        Image.fromarray(block.pixels).save(data, "jpeg", quality=90)
        (folder / file).write_bytes(data.getvalue())
        grid = {key: getattr(block, key) for key in ("kind", "rows", "columns", "newline", "end")}
        described.append({"file": file, "start": start, **grid})
    texts = _texts(processor.tokenizer, ids)
    tokens = [None if is_vision else text for text, is_vision in zip(texts, prompt.is_vision.tolist())]
    write_json(folder / f"{name}.json", {"schema": SCHEMA, "tokens": tokens, "blocks": described})

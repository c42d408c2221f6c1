"""Prompts for the tiny models, made as tensors directly: no processor and no tokenizer files are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedModel

from tests.models import IMAGE, PAD, PATCH, TILE, VIDEO, VISION_END, VISION_START

LAYOUTS = {
    "image": ("text:6", "image:0", "text:11"),
    "two_images": ("text:5", "image:1", "text:4", "image:2", "text:9"),
    "text": ("text:34",),
    "image_last": ("text:12", "image:0"),
    "image_first": ("image:0", "text:9"),
    "second_image_last": ("text:5", "image:2", "text:6", "image:0"),
    "video": ("text:5", "video:0", "text:10"),
    "short_image": ("text:4", "image:2", "text:8"),
    "one_token_tail": ("text:12", "image:1", "text:1"),
}
VIDEO_FAMILIES = ("llava_onevision", "qwen2_5_vl", "qwen3_vl")
PICTURE_SIZES = [(16, 28), (30, 16), (20, 20)]  # height and width of picture 0, 1, 2, for the tiling families
QWEN_GRIDS = [(1, 8, 8), (1, 4, 8), (1, 8, 4)]
QWEN_VIDEO_GRID = (3, 4, 4)
FRAMES = 3


@dataclass
class Sample:
    """One prompt: its token ids, and its pictures and videos by the name of the model's input."""

    ids: list[int] = field(default_factory=list)
    media: dict[str, list[torch.Tensor]] = field(default_factory=dict)

    def add(self, name: str, value: torch.Tensor) -> None:
        """Append one picture, one video, or what describes it."""
        self.media.setdefault(name, []).append(value)


def kinds(family: str) -> list[str]:
    """Kinds of prompt a family takes."""
    return [kind for kind in LAYOUTS if kind != "video" or family in VIDEO_FAMILIES]


def inputs(model: PreTrainedModel, *prompt_kinds: str, seed: int = 0) -> dict[str, torch.Tensor]:
    """Inputs of `generate`: one row per kind of prompt, padded on the left where lengths differ."""
    return collate(model, [sample(model, kind, seed + row) for row, kind in enumerate(prompt_kinds)])


def sample(model: PreTrainedModel, kind: str, seed: int = 0) -> Sample:
    """One prompt with random text and random pictures."""
    result, random = Sample(), torch.Generator().manual_seed(seed)
    pieces = [piece.split(":") for piece in LAYOUTS[kind]]
    alone = sum(name == "image" for name, _ in pieces) == 1
    for name, number in pieces:
        if name == "text":
            result.ids += torch.randint(5, 100, (int(number),), generator=random).tolist()
        elif name == "image":
            add_image(model, result, int(number), alone, random)
        else:
            add_video(model, result, random)
    if pieces[-1][0] != "text" and result.ids[-1] == VISION_END:
        result.ids.pop()  # so that the prompt ends in vision for all families
    return result


def family_of(model: PreTrainedModel) -> str:
    """The family's name as transformers spells it."""
    return model.config.model_type


def add_image(model: PreTrainedModel, prompt: Sample, which: int, alone: bool, random: torch.Generator) -> None:
    """Picture number `which`; LLaVA-OneVision cuts it into tiles only where it is alone."""
    family = family_of(model)
    if family.startswith("qwen"):
        frames, height, width = QWEN_GRIDS[which]
        prompt.add("pixel_values", patches(frames * height * width, random))
        prompt.add("image_grid_thw", torch.tensor([QWEN_GRIDS[which]]))
        prompt.ids += [VISION_START, *[IMAGE] * (frames * height * width // 4), VISION_END]
        return
    if family == "llava":
        prompt.add("pixel_values", pixels(1, random))
        prompt.ids += [IMAGE] * 16
        return
    single = family == "llava_onevision" and not alone
    height, width = PICTURE_SIZES[which]
    tiles = 1 if single else 5 if height > TILE and width > TILE else 3
    tensors = {"pixel_values": pixels(tiles, random)[None], "image_sizes": torch.tensor([[height, width]])}
    for name, value in tensors.items():
        prompt.add(name, value)
    prompt.ids += [IMAGE] * tokens_of_tiles(model, tensors, single)


@torch.no_grad()
def tokens_of_tiles(model: PreTrainedModel, tensors: dict[str, torch.Tensor], single: bool) -> int:
    """How many vision tokens the model itself makes of a tiled picture, newlines included."""
    several = {"batch_num_images": torch.tensor([2])} if single else {}
    features = model.get_image_features(**tensors, **several)
    return sum(len(feature) for feature in getattr(features, "pooler_output", features))


def add_video(model: PreTrainedModel, prompt: Sample, random: torch.Generator) -> None:
    """A video; Qwen3-VL wants text and markers before each of its frames."""
    family = family_of(model)
    if family == "llava_onevision":
        prompt.add("pixel_values_videos", pixels(FRAMES, random)[None])
        prompt.ids += [VIDEO] * (FRAMES * 4 + 1)
        return
    frames, height, width = QWEN_VIDEO_GRID
    prompt.add("pixel_values_videos", patches(frames * height * width, random))
    prompt.add("video_grid_thw", torch.tensor([QWEN_VIDEO_GRID]))
    frame = [VIDEO] * (height * width // 4)
    if family == "qwen2_5_vl":
        prompt.add("second_per_grid_ts", torch.tensor([0.5]))
        prompt.ids += [VISION_START, *frame * frames, VISION_END]
        return
    for number in range(frames):
        prompt.ids += [101, 102 + number, 103, VISION_START, *frame, VISION_END]


def pixels(tiles: int, random: torch.Generator) -> torch.Tensor:
    """Random tiles (tiles, 3, TILE, TILE)."""
    return torch.randn(tiles, 3, TILE, TILE, generator=random)


def patches(count: int, random: torch.Generator) -> torch.Tensor:
    """Random flattened patches of the Qwen families, two frames deep."""
    return torch.randn(count, 3 * 2 * PATCH * PATCH, generator=random)


def collate(model: PreTrainedModel, samples: Sequence[Sample]) -> dict[str, torch.Tensor]:
    """Left-padded batch; pictures of all rows one after another, in the order of the rows."""
    width = max(len(row.ids) for row in samples)
    ids = torch.tensor([[PAD] * (width - len(row.ids)) + row.ids for row in samples])
    result = {"input_ids": ids, "attention_mask": (ids != PAD).long()}
    for name in dict.fromkeys(name for row in samples for name in row.media):
        result[name] = stacked([value for row in samples for value in row.media.get(name, [])])
    if family_of(model).startswith("qwen"):
        result["mm_token_type_ids"] = (ids == IMAGE).int() + 2 * (ids == VIDEO).int()
    if family_of(model) == "llava_onevision" and "pixel_values" in result:
        counts = [len(row.media.get("pixel_values", [])) for row in samples]
        result["batch_num_images"] = torch.tensor([count for count in counts if count])
    return result


def stacked(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """One tensor; pictures with fewer tiles are filled up with empty ones."""
    if values[0].dim() == 5:
        tiles = max(value.shape[1] for value in values)
        values = [torch.nn.functional.pad(v, (0, 0) * 3 + (0, tiles - v.shape[1])) for v in values]
    return torch.cat(list(values))


def vision_flags(batch: dict[str, torch.Tensor]) -> list[list[bool]]:
    """Per row, which of its tokens (padding left out) are vision."""
    rows = zip(batch["input_ids"], batch["attention_mask"].bool(), strict=True)
    return [[token in (IMAGE, VIDEO) for token in ids[real].tolist()] for ids, real in rows]

"""Pictures and videos of Qwen-VL messages: sampled and resized by the rules of qwen_vl_utils, decoded with PyAV.

qwen_vl_utils reads video files with torchcodec, decord or torchvision only, and resizes frames that it is handed twice.
So its rules are called, and its reader is not.
"""

from __future__ import annotations

from typing import Any

import torch
from qwen_vl_utils import vision_process as qwen
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import resize

from lmms_eval_plugins import video

Message = dict[str, Any]


def load_media(messages: list[list[Message]], patch_size: int) -> tuple[Any, Any, Any]:
    """Pictures, videos and the videos' metadata, in the order of the messages; None where there are none."""
    images, videos, metadata = [], [], []
    for element in qwen.extract_vision_info(messages):
        if "video" in element:
            frames, described = load_video(element, patch_size)
            videos.append(frames)
            metadata.append(described)
        else:
            images.append(qwen.fetch_image(element, image_patch_size=patch_size))
    return images or None, videos or None, metadata or None


def load_video(element: Message, patch_size: int) -> tuple[Tensor, dict[str, Any]]:
    """Frames (T, 3, H, W) of one video, resized, and what timestamps are derived from.

    Args:
        element: its path, how it is sampled (`nframes`, or `fps` with `max_frames`) and resized (`min_pixels`,
            `max_pixels`, `total_pixels`), and `video_start` and `video_end` in seconds.

    Raises:
        VideoError: see `video.read`.
    """
    if not isinstance(element["video"], str):  # frames that a task made itself
        return qwen.fetch_video(element, image_patch_size=patch_size, return_video_metadata=True)
    clip = video.read(element["video"], lambda total, fps: chosen_frames(element, total, fps))
    frames = torch.from_numpy(clip.frames).permute(0, 3, 1, 2)
    size = frame_size(element, tuple(frames.shape), patch_size * qwen.SPATIAL_MERGE_SIZE)
    frames = resize(frames, size, interpolation=InterpolationMode.BICUBIC, antialias=True).float()
    *_, available = qwen.calculate_video_frame_range(element, clip.total, clip.fps)
    return frames, {**clip.metadata(), "total_num_frames": available}


def chosen_frames(element: Message, total: int, fps: float) -> list[int]:
    """Evenly spread frames of the video, or of its part from `video_start` to `video_end`.

    A request for more frames than there are is rounded down to what there is and to the frame factor, where
    qwen_vl_utils rounds to the nearest even number and then stops.
    """
    first, last, available = qwen.calculate_video_frame_range(element, total, fps)
    if "nframes" in element:
        count = qwen.floor_by_factor(min(element["nframes"], available), qwen.FRAME_FACTOR)
        element = {"nframes": max(count, qwen.FRAME_FACTOR)}
    count = qwen.smart_nframes(element, total_frames=available, video_fps=fps)
    return torch.linspace(first, last, count).round().long().tolist()


def frame_size(element: Message, shape: tuple[int, ...], factor: int) -> list[int]:
    """Height and width of the frames: the rule in `qwen_vl_utils.vision_process.fetch_video`."""
    count, _, height, width = shape
    area = factor**2
    least = element.get("min_pixels", qwen.VIDEO_MIN_TOKEN_NUM * area)
    total = element.get("total_pixels", qwen.MODEL_SEQ_LEN * area * 0.9)
    most = max(min(qwen.VIDEO_MAX_TOKEN_NUM * area, total / count * qwen.FRAME_FACTOR), int(least * 1.05))
    most = min(element.get("max_pixels", most), most)
    return list(qwen.smart_resize(height, width, factor=factor, min_pixels=least, max_pixels=most))

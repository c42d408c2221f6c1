"""Frames of a video file, decoded with PyAV: which ones, at which times, or in one line why there are none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np

LEAST_FRAMES = 2
_LOST_AT_THE_END = 0.01
"""Share of the frames that a file may name in its index without having them: a cut at the end, not a broken file."""

Choice = Callable[[int, float], Sequence[int]]


class VideoError(ValueError):
    """A video that cannot be shown to a model; the message names the file and the reason."""


@dataclass(frozen=True)
class Clip:
    """Chosen frames of a video.

    Attributes:
        frames: (T, H, W, 3) uint8, RGB.
        indices: of the frames in the video, ascending; repeats are allowed.
        total: frames of the whole video.
        fps: of the whole video.
    """

    frames: np.ndarray
    indices: list[int]
    total: int
    fps: float

    def metadata(self) -> dict[str, Any]:
        """What processors derive timestamps from."""
        return {
            "fps": self.fps,
            "frames_indices": list(self.indices),
            "total_num_frames": self.total,
            "video_backend": "pyav",
        }


def read(path: str, choose: Choice) -> Clip:
    """Decodes the frames that `choose` picks, given the number of frames and the frames per second.

    Raises:
        VideoError: the file is missing, empty or damaged, or has fewer than two frames.
    """
    path = _existing(path)
    try:
        total, fps = _measure(path)
        clip = _decode(path, total, fps, choose)
        if isinstance(clip, Clip):
            return clip
        _check_whole(path, total, clip)
        again = _decode(path, clip, fps, choose)
    except (av.error.FFmpegError, OSError) as error:
        raise VideoError(f"{path}: cannot be decoded: {_reason(error)}") from error
    if isinstance(again, Clip):
        return again
    raise VideoError(f"{path}: damaged: its frames cannot be counted")


def uniform(most: int) -> Choice:
    """`most` frames from the first to the last, repeated where the video has fewer; LLaVA's rule in lmms-eval."""
    return lambda total, fps: np.linspace(0, total - 1, most, dtype=int).tolist()


def _existing(path: str) -> str:
    path = path.removeprefix("file://")
    if "://" not in path:
        if not Path(path).is_file():
            raise VideoError(f"{path}: there is no such video file")
        if Path(path).stat().st_size == 0:
            raise VideoError(f"{path}: the video file is empty (0 bytes)")
    return path


def _measure(path: str) -> tuple[int, float]:
    """Frames and frames per second, without decoding: not every container names the first, and some get it wrong."""
    with av.open(path) as container:
        stream = _stream(container, path)
        packets = [packet.is_discard for packet in container.demux(stream) if packet.size]
        total, rate = packets.count(False), stream.average_rate or stream.guessed_rate
        _check_whole(path, stream.frames, len(packets))
    if total < LEAST_FRAMES:
        raise VideoError(f"{path}: has {total} frame(s), and at least {LEAST_FRAMES} are needed")
    if not rate:
        raise VideoError(f"{path}: does not say how many frames it has per second")
    return total, float(rate)


def _check_whole(path: str, named: int, there: int) -> None:
    if named - there > max(1, named * _LOST_AT_THE_END):
        raise VideoError(f"{path}: damaged: only {there} of its {named} frames are there")


def _decode(path: str, total: int, fps: float, choose: Choice) -> Clip | int:
    """The chosen frames, or how many frames there are if the last chosen one does not come."""
    indices = [int(index) for index in choose(total, fps)]
    wanted, found, seen = set(indices), dict[int, np.ndarray](), 0
    for frame in _frames(path):
        if seen in wanted:
            found[seen] = frame.to_ndarray(format="rgb24")
        seen += 1
        if len(found) == len(wanted):
            return Clip(np.stack([found[index] for index in indices]), indices, total, fps)
    return seen


def _frames(path: str) -> Iterator[Any]:
    with av.open(path) as container:
        stream = _stream(container, path)
        stream.thread_type = "AUTO"
        yield from container.decode(stream)


def _stream(container: Any, path: str) -> Any:
    if not container.streams.video:
        raise VideoError(f"{path}: has no video stream")
    return container.streams.video[0]


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).splitlines()[0]

"""Limits on the number of vision tokens, under the official names.

`IMAGE_MAX_TOKEN_NUM`: the most vision tokens of one picture (Qwen-VL, where their number follows the picture's size).
`VISION_ASPECT_RATIO`: `anyres_max_<n>`, the most crops of one picture (LLaVA-OneVision).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kv_caches import ConfigError
from kv_caches.values import number, whole

_MOST_TOKENS = 16384
_LEAST = {"min_pixels": 1, "max_pixels": 1, "total_pixels": 1, "max_num_frames": 2, "max_frames_num": 2}


@dataclass(frozen=True)
class VisionLimits:
    """The limits that apply to the loaded model.

    Attributes:
        notes: which variables have no effect on it, and which of another library have one.
        library: the limits of qwen_vl_utils, which it takes in part from the environment.
    """

    image_max_tokens: int | None = None
    aspect_ratio: str | None = None
    notes: tuple[str, ...] = ()
    library: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_env(cls, env: Mapping[str, str], model_type: str, token_side: int | None) -> "VisionLimits":
        """Reads both variables.

        Args:
            token_side: pixels per side of one vision token; None if their number is fixed.

        Raises:
            ConfigError: a value is out of range.
        """
        tokens, ratio, notes = _tokens(env), _aspect_ratio(env), []
        if tokens is not None and token_side is None:
            tokens = None
            notes.append(f"IMAGE_MAX_TOKEN_NUM has no effect on {model_type}: it applies to qwen3_vl and qwen2_5_vl")
        if ratio is not None and model_type != "llava_onevision":
            ratio = None
            notes.append(f"VISION_ASPECT_RATIO has no effect on {model_type}: it applies to llava_onevision")
        library = {} if token_side is None else library_limits(env)
        notes += [
            f"{name}={env[name]} limits videos (qwen_vl_utils)"
            for name in ("MODEL_SEQ_LEN",)
            if name in env and library
        ]
        return cls(tokens, ratio, tuple(notes), library)


def library_limits(env: Mapping[str, str]) -> dict[str, float]:
    """Every number that decides how qwen_vl_utils samples and resizes, as this process has read them.

    Raises:
        ConfigError: one in the environment is no number.
    """
    try:
        from qwen_vl_utils import vision_process
    except ValueError as error:
        raise ConfigError(
            f"MODEL_SEQ_LEN={env.get('MODEL_SEQ_LEN')}: qwen_vl_utils needs a number ({error})"
        ) from error
    values = vars(vision_process).items()
    return {name: value for name, value in sorted(values) if name.isupper() and isinstance(value, int | float)}


def check_sampling(values: Mapping[str, Any]) -> dict[str, float]:
    """The model arguments on how videos are sampled and how pictures and frames are resized, as numbers.

    Raises:
        ConfigError: no video or picture could be shown with them.
    """
    given = {name: value for name, value in values.items() if value is not None}
    found: dict[str, float] = {
        name: whole(f"--model_args {name}", given[name], least) for name, least in _LEAST.items() if name in given
    }
    if "fps" in given:
        fps = number("--model_args fps", given["fps"])
        found["fps"] = fps if isinstance(given["fps"], str) else given["fps"]
    least, most = found.get("min_pixels"), found.get("max_pixels")
    if least is not None and most is not None and least > most:
        raise ConfigError(f"max_pixels={most} in --model_args is below min_pixels={least}; set both")
    return found


def _tokens(env: Mapping[str, str]) -> int | None:
    value = env.get("IMAGE_MAX_TOKEN_NUM")
    if not value:
        return None
    return whole("IMAGE_MAX_TOKEN_NUM", value, 4, _MOST_TOKENS)


def _aspect_ratio(env: Mapping[str, str]) -> str | None:
    value = env.get("VISION_ASPECT_RATIO")
    if not value:
        return None
    if not re.fullmatch(r"anyres_max_[1-9][0-9]{0,3}", value):
        raise ConfigError(f"VISION_ASPECT_RATIO={value}: anyres_max_<n> is needed, such as anyres_max_9")
    return value

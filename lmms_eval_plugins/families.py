"""The model families by lmms-eval's names, with the model arguments (and defaults) of lmms-eval's own wrappers."""

from lmms_eval_plugins.settings import Family

_QWEN = {
    "min_pixels": 256 * 28 * 28,
    "max_pixels": 1605632,
    "max_num_frames": 32,
    "fps": None,
    "system_prompt": "You are a helpful assistant.",
    "interleave_visuals": False,
    "reasoning_prompt": None,
}

LLAVA = Family(
    name="llava_hf",
    model_types=("llava", "llava_next", "llava_onevision"),
    options={"chat_template": None, "max_frames_num": 32},
)
QWEN3_VL = Family(
    name="qwen3_vl",
    model_types=("qwen3_vl", "qwen3_vl_moe"),
    options={**_QWEN, "total_pixels": None, "enable_thinking": None},
    default_dtype="bfloat16",
    token_side=32,
)
QWEN2_5_VL = Family(
    name="qwen2_5_vl",
    model_types=("qwen2_5_vl",),
    options=_QWEN,
    default_dtype="bfloat16",
    token_side=28,
)

FAMILIES = {family.name: family for family in (LLAVA, QWEN3_VL, QWEN2_5_VL)}

"""Everything that is decided before a model is loaded: checked, resolved, and put into the fingerprint."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kv_caches import ConfigError, KVConfig
from kv_caches.config import max_generated_tokens
from kv_caches.errors import nearest
from kv_caches.models import check_model_type, fitting_rows
from kv_caches.values import one_of, switch, text, whole
from lmms_eval_plugins import checkpoint, launcher, models, versions
from lmms_eval_plugins.sweeps import load_sweep
from lmms_eval_plugins.vision import VisionLimits, check_sampling

_COMMON = {
    "pretrained": None,
    "revision": "main",
    "device": None,
    "device_map": None,
    "dtype": None,
    "attn_implementation": None,
    "batch_size": 1,
    "trust_remote_code": False,
    "use_cache": True,
    "max_batch_size": None,
    "kv_fingerprint": None,
}
_NOT_IN_FINGERPRINT = (
    "pretrained",
    "revision",
    "device",
    "device_map",
    "batch_size",
    "max_batch_size",
    "kv_fingerprint",
)
_DTYPES = ("auto", "float32", "float16", "bfloat16")
_DEVICES = ("cpu", "cuda", "cuda:0")
_SWITCHES = ("trust_remote_code", "use_cache", "interleave_visuals", "enable_thinking")
_TEXTS = ("revision", "system_prompt", "reasoning_prompt", "chat_template", "kv_fingerprint")
_IN_ARGUMENTS = " in --model_args"
_KERNELS = ("eager", "sdpa", "flash_attention_2", "flash_attention_3")


@dataclass(frozen=True)
class Family:
    """What differs between lmms-eval's model names before a model is loaded.

    Attributes:
        name: lmms-eval's model name, such as `llava_hf`.
        model_types: `model_type` of the checkpoints it loads.
        options: model arguments of this family beside the common ones, with their defaults.
        default_dtype: on CUDA, if the arguments name none (as in stock); on CPU the default is float32.
        token_side: pixels per side of one vision token, if their number follows the picture's size.
    """

    name: str
    model_types: tuple[str, ...]
    options: Mapping[str, Any]
    default_dtype: str = "auto"
    token_side: int | None = None


@dataclass(frozen=True)
class RunSettings:
    """One run, resolved.

    Attributes:
        kv: None for stock behaviour.
        sweep: configurations that are answered together with this one, from `KV_SWEEP`.
        decode_batch: the most rows a sweep decodes together, or None.
        given: model arguments that were not left to their defaults.
        max_new_tokens: MAX_GENERATED_TOKENS, which holds for stock behaviour too.
        row: of configs/models, that tables name the model by: MODEL_TYPE, or what fits the checkpoint; or None.
    """

    family: Family
    wrapper: str
    pretrained: str
    revision: str
    device: str
    device_map: str
    dtype: str
    batch_size: int
    attn_implementation: str | None
    trust_remote_code: bool
    kv: KVConfig | None
    vision: VisionLimits
    hf_config: Any
    fingerprint: str
    allow_failures: bool
    options: dict[str, Any] = field(default_factory=dict)
    sweep: tuple[KVConfig, ...] = ()
    decode_batch: int | None = None
    given: dict[str, Any] = field(default_factory=dict)
    max_new_tokens: int | None = None
    row: str | None = None


def resolve(family: Family, wrapper: str, args: dict[str, Any], env: Mapping[str, str] = os.environ) -> RunSettings:
    """Checks model arguments and environment of a run; loads configuration files, no weights.

    Args:
        wrapper: "chat" or "simple".
        args: as lmms-eval parsed them from `--model_args`, `--device` and `--batch_size`.

    Raises:
        ConfigError: one line on what is wrong and what is allowed.
    """
    kv, given = KVConfig.from_env(env), _known(family, args)
    values = {**_COMMON, **family.options, **given}
    device, device_map = resolve_device(values["device"], values["device_map"], env)
    pretrained = checkpoint.locate(values["pretrained"], values["revision"])
    hf_config = checkpoint.load_config(pretrained, values["revision"], values["trust_remote_code"])
    _check_family(family, pretrained, hf_config)
    check_model_type(env.get("MODEL_TYPE"), hf_config)
    row = env.get("MODEL_TYPE") or next(iter(fitting_rows(hf_config)), None)
    kv = kv and replace(kv, model_type=row)
    given = {**checkpoint.own_arguments(pretrained, env.get("MODEL_TYPE")), **given}
    values |= given
    numbers = check_sampling(values)
    values |= numbers
    given |= {name: number for name, number in numbers.items() if name in given}
    if kv is not None and not values["use_cache"]:
        raise ConfigError("use_cache=False in --model_args: without a KV cache there is nothing to evict from")
    settings = RunSettings(
        family=family,
        wrapper=wrapper,
        pretrained=pretrained,
        revision=values["revision"],
        device=device,
        device_map=device_map,
        dtype=_dtype(values["dtype"], family, device),
        batch_size=whole("--batch_size", values["batch_size"], 1),
        attn_implementation=_kernel(values["attn_implementation"]),
        trust_remote_code=values["trust_remote_code"],
        kv=kv,
        vision=VisionLimits.from_env(env, hf_config.model_type, family.token_side),
        hf_config=hf_config,
        fingerprint="",
        allow_failures=switch("KV_ALLOW_FAILURES", env),
        options={name: values[name] for name in family.options} | {"use_cache": values["use_cache"]},
        sweep=_sweep(env, kv),
        decode_batch=_decode_batch(env),
        given=given,
        max_new_tokens=max_generated_tokens(env),
        row=row,
    )
    return _checked(for_config(settings, kv), values["kv_fingerprint"])


def _checked(run: RunSettings, asked: str | None) -> RunSettings:
    if asked not in (None, run.fingerprint):
        raise ConfigError(
            f"kv_fingerprint={asked} in --model_args belongs to another run; this one is "
            f"{run.fingerprint} (leave the argument out and it is added)"
        )
    return run


def for_config(run: RunSettings, kv: KVConfig | None) -> RunSettings:
    """The same run with another configuration, and with the fingerprint it has on its own."""
    run = replace(run, kv=kv)
    return replace(run, fingerprint=_fingerprint(run, run.given))


def _sweep(env: Mapping[str, str], kv: KVConfig | None) -> tuple[KVConfig, ...]:
    name = env.get("KV_SWEEP")
    if not name:
        return ()
    if kv is None:
        raise ConfigError(f"KV_SWEEP={name} is set but KV_CACHE_TYPE is not: name the method that this run scores")
    return tuple(load_sweep(name, base=kv))


def _decode_batch(env: Mapping[str, str]) -> int | None:
    value = env.get("KV_DECODE_BATCH")
    return whole("KV_DECODE_BATCH", value, 1, meaning=" (unset: what fits into memory)") if value else None


def _fingerprint(settings: RunSettings, given: dict[str, Any]) -> str:
    """Same before and after a run, on every machine with the same libraries, wherever the checkpoint folder is."""
    return (settings.kv or KVConfig(max_new_tokens=settings.max_new_tokens)).fingerprint(
        stock=settings.kv is None,
        model=checkpoint.identity(settings.pretrained, settings.hf_config),
        revision=settings.revision,
        wrapper=f"{settings.family.name}/{settings.wrapper}",
        wrapper_version=models.WRAPPER_VERSION,
        versions=versions.deciding(),
        dtype=settings.dtype,
        image_max_tokens=settings.vision.image_max_tokens,
        aspect_ratio=settings.vision.aspect_ratio,
        media_limits=dict(settings.vision.library),
        arguments={name: given[name] for name in sorted(given) if name not in _NOT_IN_FINGERPRINT},
    )


def _known(family: Family, args: dict[str, Any]) -> dict[str, Any]:
    allowed = {**_COMMON, **family.options}
    for name in args:
        if name not in allowed:
            raise ConfigError(
                f"--model_args: {family.name} has no argument {name!r}; allowed: {', '.join(sorted(allowed))}."
                + nearest(name, allowed)
            )
    if args.get("max_batch_size") is not None:
        raise ConfigError(
            f"max_batch_size={text(args['max_batch_size'])}: batches have the size of --batch_size, and none is looked "
            "for; leave it out"
        )
    for name, value in args.items():
        if name in _SWITCHES and not isinstance(value, bool | None):
            raise ConfigError(f"--model_args {name}={text(value)}: True or False is needed")
        if name in _TEXTS and not isinstance(value, str | None):
            raise ConfigError(f"--model_args {name}={text(value)}: text is needed, and lmms-eval reads it as a number")
    return {name: value for name, value in args.items() if value is not None}


def _check_family(family: Family, pretrained: str, hf_config: Any) -> None:
    if hf_config.model_type not in family.model_types:
        raise ConfigError(
            f"--model {family.name} loads {', '.join(family.model_types)}; {pretrained} is a {hf_config.model_type}"
        )


def resolve_device(device: Any, device_map: Any, env: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """The device of the inputs and the `device_map` for loading; several processes share the GPUs out.

    Raises:
        ConfigError: CUDA is asked for and there is none, or there are more processes than GPUs.
    """
    device, device_map = _device("device", device, _DEVICES), _device("device_map", device_map, (*_DEVICES, "auto"))
    asked = device_map if device_map not in ("", "auto") else device
    cuda = torch.cuda.is_available()
    if asked.startswith("cuda") and not cuda:
        name = "device_map" if asked == device_map else "device"
        raise ConfigError(f"{name}={asked}: there is no CUDA device on this machine; use device_map=cpu")
    if asked == "cpu" or not cuda:
        return "cpu", "cpu"
    _check_number(asked)
    processes = launcher.count("LOCAL_WORLD_SIZE" if "LOCAL_WORLD_SIZE" in env else "WORLD_SIZE", env)
    if processes == 1:
        return (asked or "cuda"), (device_map or asked or "cuda")
    if asked.startswith("cuda:"):
        return asked, asked
    local_rank, gpus = launcher.count("LOCAL_RANK", env), torch.cuda.device_count()
    if processes > gpus:
        raise ConfigError(
            f"{processes} processes, but this machine has {gpus} CUDA device(s); use --num_processes={gpus}"
        )
    return f"cuda:{local_rank}", f"cuda:{local_rank}"


def _device(name: str, asked: Any, allowed: tuple[str, ...]) -> str:
    value = "" if asked is None else text(asked)
    if value and not re.fullmatch(r"cuda:[0-9]{1,3}", value):
        one_of(name, value, allowed, _IN_ARGUMENTS)
    return value


def _check_number(asked: str) -> None:
    gpus = torch.cuda.device_count()
    if asked.startswith("cuda:") and int(asked[5:]) >= gpus:
        raise ConfigError(f"{asked} in --model_args: this machine has {gpus} CUDA device(s), counted from cuda:0")


def _dtype(asked: Any, family: Family, device: str) -> str:
    if asked is None:
        return "float32" if device == "cpu" else family.default_dtype
    return one_of("dtype", text(asked), _DTYPES, _IN_ARGUMENTS)


def _kernel(asked: Any) -> Any:
    return None if asked is None else one_of("attn_implementation", asked, _KERNELS, _IN_ARGUMENTS)

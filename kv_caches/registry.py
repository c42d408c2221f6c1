"""Name -> method. Built-ins load lazily; other packages add theirs by the entry point group kv_caches.methods."""

from __future__ import annotations

import importlib
import re
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from . import source
from .errors import ConfigError, nearest
from .method import Method

GROUP = "kv_caches.methods"
_BUILT_IN = {
    name: f"kv_caches.methods.{name}"
    for name in (
        "full",
        "tgv_kv",
        "h2o",
        "snapkv",
        "streaming_llm",
        "elastic_cache",
        "prefix_kv",
        "pyramid_kv",
        "ada_kv",
        "ablation",
        "random",
        "random_text_first",
        "random_vision_first",
        "tova",
        "keydiff",
        "knorm",
        "expected_attention",
        "mm_shiftkv",
        "observed_attention",
        "look_m",
        "vl_cache",
        "cake",
        "mix_kv",
        "fastv",
    )
}
_ALIASES = {"none": "full", "fullkv": "full", "fullcache": "full"}


def _key(name: str) -> str:
    """Spelling does not matter: TGV-KV, tgv_kv, 'tgv kv' and tgvkv are one name."""
    return re.sub(r"[\s_-]", "", name).lower()


@cache
def _plugins() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    taken = {_key(name) for name in [*_BUILT_IN, *_ALIASES]}
    for point in entry_points(group=GROUP):
        if _BUILT_IN.get(point.name) == point.value:
            continue
        if _key(point.name) in taken:
            raise ConfigError(
                f"method {point.name!r} from {point.value!r} is already registered; rename its entry point"
            )
        taken.add(_key(point.name))
        found[point.name] = point
    return found


def method_names() -> list[str]:
    """Canonical names of every registered method, sorted."""
    return sorted([*_BUILT_IN, *_plugins()])


def canonical(name: str, variable: str = "KV_CACHE_TYPE") -> str:
    """The registry name for any accepted spelling.

    Raises:
        ConfigError: unknown name, with the nearest match.
    """
    names = {_key(n): n for n in method_names()} | _ALIASES
    if _key(name) not in names:
        allowed = ", ".join(sorted([*method_names(), "none"]))
        raise ConfigError(
            f"{variable}={name!r} is not a method; allowed: {allowed}.{nearest(name, [*method_names(), *_ALIASES])}"
        )
    return names[_key(name)]


def module_name(name: str) -> str:
    """The module of a registered method."""
    return _BUILT_IN[name] if name in _BUILT_IN else _plugins()[name].value


def _module(name: str) -> ModuleType:
    return importlib.import_module(module_name(name))


@cache
def source_digest(name: str) -> str:
    """Hash of the code that decides a method's answer; see source.py."""
    return source.digest(module_name(canonical(name)))


def variants(name: str) -> tuple[str, ...]:
    """Variants of a method; the first is the default."""
    return _module(canonical(name)).VARIANTS


def build(name: str, variant: str) -> Method:
    """Make a method in one variant.

    Raises:
        ConfigError: the method has no such variant.
    """
    allowed = variants(name)
    if variant not in allowed:
        raise ConfigError(
            f"KV_VARIANT={variant!r} is not a variant of {canonical(name)}; allowed: {', '.join(allowed)}."
            f"{nearest(variant, allowed)}"
        )
    return _module(canonical(name)).build(variant)

"""Settings read in one way everywhere: environment variables, arguments and YAML files.

What is not as it must be is one line that names it. Digits are the ten of ASCII: `str.isdigit` knows hundreds more that
`int` refuses, or takes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from .errors import ConfigError, nearest

_MOST = 10**9
_DEEPEST, _LONGEST = 16, 1000
_UNREADABLE = (
    *(yaml.YAMLError, OSError, RecursionError),
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError),  # tags that do not fit their value
)
_WHOLE = re.compile(r"\s*[0-9]{1,19}\s*", re.ASCII)
NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?\s*", re.ASCII | re.IGNORECASE)
"""A decimal number; neither nan nor inf, no underscores."""


def whole(name: str, value: Any, least: int = 0, most: int = _MOST, meaning: str = "") -> int:
    """A whole number, given as such or as text.

    Args:
        meaning: what the line says after the range.

    Raises:
        ConfigError: it is none, or out of range.
    """
    number = -1
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and _WHOLE.fullmatch(value):
        number = int(value)
    if not max(least, 0) <= number <= most:
        limits = f"from {least}" if most >= _MOST else f"from {least} to {most}"
        raise ConfigError(f"{name}={text(value)}: a whole number {limits} is needed{meaning}")
    return number


def number(name: str, value: Any, above: float = 0, most: float = math.inf, unit: str = "a number") -> float:
    """A finite number above a bound, given as such or as text.

    Raises:
        ConfigError: it is none, or out of range.
    """
    given = math.nan
    if (isinstance(value, str) and NUMBER.fullmatch(value)) or _is_number(value):
        given = float(value) if isinstance(value, str) or abs(value) < 1e300 else math.inf
    if not (above < given <= most and math.isfinite(given)):
        limits = f"above {above:g}" if most == math.inf else f"above {above:g} and up to {most:g}"
        raise ConfigError(f"{name}={text(value)}: {unit} {limits} is needed")
    return given


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def switch(name: str, env: Mapping[str, str]) -> bool:
    """A variable that is 1 (yes), or 0, empty or unset (no).

    Raises:
        ConfigError: anything else.
    """
    value = env.get(name, "")
    if value not in ("", "0", "1"):
        raise ConfigError(f"{name}={value}: 1 (yes) or 0 (no) is needed")
    return value == "1"


def one_of(name: str, value: Any, allowed: Collection[str], where: str = "") -> Any:
    """A value that is among those allowed.

    Raises:
        ConfigError: it is not; with the nearest one.
    """
    if not (isinstance(value, str) and value in allowed):
        raise ConfigError(
            f"{name}={text(value)}{where} is unknown; allowed: {', '.join(allowed)}.{nearest(text(value), allowed)}"
        )
    return value


def text(value: Any) -> str:
    """Any value as a message shows it; numbers too long to be written are said to be that."""
    try:
        return str(value)
    except ValueError:
        return "(a number of thousands of digits)"


def read_yaml(path: Path, aliases: bool = False) -> Any:
    """What a YAML file says.

    Args:
        aliases: whether a part may be repeated by its name: a few lines of that can stand for more than fits in memory.

    Raises:
        ConfigError: it cannot be read, is nested deeper than any setting, has a value of thousands of characters, or
            says something twice.
    """
    try:
        content = path.read_text(encoding="utf-8")
        _check_shape(path, content, aliases)
        _check_keys(path, yaml.compose(content, Loader=yaml.SafeLoader), set())
        return yaml.safe_load(content)
    except _UNREADABLE as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path} is not readable YAML: {error}") from error


def _check_shape(path: Path, content: str, aliases: bool) -> None:
    depth = 0
    for event in yaml.parse(content, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        where = f"{path}, line {event.start_mark.line + 1}"
        if depth > _DEEPEST:
            raise ConfigError(f"{where}: nested more than {_DEEPEST} deep, and no setting is")
        if isinstance(event, yaml.AliasEvent) and not aliases:
            raise ConfigError(f"{where}: *{event.anchor} repeats another part, which is not read here; write it out")
        if isinstance(event, yaml.ScalarEvent) and len(event.value) > _LONGEST:
            raise ConfigError(f"{where}: a value of {len(event.value)} characters, and no setting is that long")


def _check_keys(path: Path, node: yaml.Node | None, seen: set[int]) -> None:
    """YAML takes the last of two equal keys, and the first would be nowhere."""
    if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
        return
    seen.add(id(node))
    names: set[str] = set()
    for entry in node.value:
        for part in entry if isinstance(node, yaml.MappingNode) else (entry,):
            _check_keys(path, part, seen)
        if isinstance(node, yaml.MappingNode) and isinstance(key := entry[0], yaml.ScalarNode):
            if key.value in names:
                raise ConfigError(f"{path}, line {key.start_mark.line + 1}: {key.value} stands here twice; keep one")
            names.add(key.value)

"""Arguments that lmms-eval reads itself, checked as it will read them, before anything slow happens."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from kv_caches import ConfigError
from kv_caches.values import NUMBER, whole
from lmms_eval_plugins import generation


def pairs(name: str, given: str | None) -> dict[str, Any]:
    """`name=value,name=value` as lmms-eval reads it.

    Raises:
        ConfigError: it cannot.
    """
    from lmms_eval.utils import simple_parse_args_string

    try:
        return simple_parse_args_string(given or "")
    except ValueError as error:  # a part without =, or digits that are none
        raise ConfigError(f"{name} {given}: name=value, separated by commas, is needed") from error


def problems(args: argparse.Namespace) -> Iterator[str]:
    """A line for everything with which lmms-eval would end, or score something else, once it comes to it.

    Args:
        args: see `preflight.parse`.
    """
    for check in (_limit, _offset, _generation):
        try:
            check(args)
        except ConfigError as error:
            yield str(error)


def _limit(args: argparse.Namespace) -> None:
    number = float(args.limit) if args.limit is not None and NUMBER.fullmatch(args.limit) else 0.0
    samples = number.is_integer() and (number == -1 or 1 <= number <= 10**9)
    if args.limit is not None and not (samples or 0 < number < 1):
        raise ConfigError(
            f"--limit {args.limit}: a number of samples from 1, or a share below 1, is needed (-1: all samples)"
        )


def _offset(args: argparse.Namespace) -> None:
    if args.offset is not None:
        whole("--offset", args.offset, meaning=": the first sample of each task, counted from 0")


def _generation(args: argparse.Namespace) -> None:
    generation.check(pairs("--gen_kwargs", args.gen_kwargs))

"""Whether a run asks for this package at all: without one of its variables lmms-eval runs as if it were not installed.

lmms-eval loads the entry point on every import, so this imports nothing of torch, transformers or `kv_caches`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

VARIABLES = (
    "KV_",
    "PRUNE_",
    "MODEL_TYPE",
    "MAX_GENERATED_TOKENS",
    "IMAGE_MAX_TOKEN_NUM",
    "VISION_ASPECT_RATIO",
)
"""What the names of all variables begin with; one that is misspelt asks too, and is refused by name."""


def asks_for_us(env: Mapping[str, str], argv: Sequence[str]) -> bool:
    """One of the variables is set, by the environment or by a run of lmms-eval's `--config` file."""
    return any(name.startswith(VARIABLES) for name in (*env, *_set_by_file(argv)))


def is_lmms_eval(program: str) -> bool:
    """Whether `sys.argv[0]` is lmms-eval's command line."""
    path = Path(program)
    return path.stem in ("lmms-eval", "lmms_eval") or (path.name == "__main__.py" and path.parent.name == "lmms_eval")


def _set_by_file(argv: Sequence[str]) -> Iterator[str]:
    """Names below `env:` of a configuration file; one that cannot be read is lmms-eval's to refuse."""
    if not argv or not is_lmms_eval(argv[0]):
        return
    import yaml

    for here, following in zip(argv, [*argv[1:], ""]):
        if here != "--config" and not here.startswith("--config="):
            continue
        with suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
            content = yaml.safe_load(Path(here.partition("=")[2] or following).read_text(encoding="utf-8"))
            for run in content if isinstance(content, list) else [content]:
                env = run.get("env") if isinstance(run, dict) else None
                yield from map(str, env if isinstance(env, dict) else ())

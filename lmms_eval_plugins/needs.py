"""What tasks need beside a model: their data set, Java, a judge. Read from their files; nothing of them is imported."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from lmms_eval_plugins import imports
from lmms_eval_plugins.judge.scoring import METRIC

TASKS_DIR = Path(__file__).parent / "tasks"
_NAME = re.compile(rb"""^["']?(task|group|tag)["']?[ \t]*:[ \t]*["']?([\w.+-]+)""", re.MULTILINE)
_FUNCTION = re.compile(r"!function\s+([\w.]+)\.(\w+)")
_INCLUDE = re.compile(r"""^include:\s*["']?([^\s"']+)""", re.MULTILINE)
_JAVA = {"PTBTokenizer", "Meteor", "Spice", "COCOEvalCap"}
_JUDGES = {"get_server", "ServerConfig", "OpenAIVerifier"}
_KEY = re.compile(r"[A-Z_]*API_KEY")
_JUDGED = "lmms_eval_plugins/judge/scoring.py"


@dataclass
class Needs:
    """Of one task.

    Attributes:
        dataset: hub id, folder, or the name of a file format; None if the task computes it.
        configuration: of the data set, or None.
        arguments: `dataset_kwargs` of the task: what its loader is given.
        split: that is scored.
        java: a metric starts Java.
        keys: environment variables of which one holds the key of the task's judge; empty without a judge.
        judged: answers are judged by `lmms_eval_plugins.judge`, apart from generating them.
        missing: modules that its code imports and that cannot be imported here, with the reason.
    """

    dataset: Any = None
    configuration: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    split: str | None = None
    java: bool = False
    keys: set[str] = field(default_factory=set)
    judged: bool = False
    missing: dict[str, str] = field(default_factory=dict)


def task_names() -> set[str]:
    """Names of tasks, groups and tags, read quickly and roughly: for suggestions only."""
    return {name for root in _roots() for name in _index(root)}


def some(tasks: list[str]) -> str:
    """Three of them, and how many more."""
    return ", ".join(tasks) if len(tasks) <= 3 else f"{', '.join(tasks[:3])} and {len(tasks) - 3} more"


def unknown(names: Iterable[str]) -> list[str]:
    """Those that stand in no task file at all."""
    missing = [name for name in names if not _matches(name) and not os.path.exists(name)]
    contents = [content for root in _roots() for content in _files(root).values()] if missing else []
    return [
        name for name in missing if not any(name.encode(errors="backslashreplace") in content for content in contents)
    ]


def of(names: Iterable[str]) -> dict[str, Needs]:
    """Needs by task, groups and tags resolved; a task whose files cannot be read is left out."""
    found: dict[str, Needs] = {}
    for path in dict.fromkeys(path for name in names for path in _paths(name, set())):
        try:
            config, functions = _config(path), set(_functions(path))
        except (OSError, ValueError, SyntaxError):
            continue
        words = _reached(functions)
        keys = {word for word in words if _KEY.fullmatch(word) and ("OPENAI" in word or "AZURE" in word)}
        judged = bool(keys or words & _JUDGES)
        dataset = None if "class" in config else config.get("dataset_path")  # a class of its own loads as it likes
        needs = Needs(dataset, config.get("dataset_name"), config.get("dataset_kwargs") or {})
        needs.split = config.get("test_split") or config.get("validation_split")
        needs.java = bool(words & _JAVA)
        needs.keys = (keys or {"OPENAI_API_KEY"}) if judged else set()
        metrics = {metric.get("metric") for metric in config.get("metric_list") or () if isinstance(metric, dict)}
        needs.judged = METRIC in metrics and any(path.match(_JUDGED) for path, _ in functions)
        needs.missing = imports.missing({path for path, _ in functions}, words)
        found[str(config.get("task", path.stem))] = needs
    return found


def _roots() -> tuple[Path, Path]:
    import lmms_eval

    return TASKS_DIR, Path(lmms_eval.__file__).parent / "tasks"


@cache
def _files(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*.yaml")}


@cache
def _index(root: Path) -> dict[str, list[tuple[str, Path]]]:
    """By name: whether it is a task, a group or a tag there, and the file."""
    found: dict[str, list[tuple[str, Path]]] = {}
    for path, content in _files(root).items():
        for kind, name in _NAME.findall(content):
            found.setdefault(name.decode(), []).append((kind.decode(), path))
    return found


def _matches(name: str) -> list[tuple[str, Path]]:
    """Where a name or a pattern stands; lmms-eval's thousands of files are read only if it is none of ours."""
    for root in _roots():
        index = _index(root)
        found = [name] if name in index else [other for other in index if "*" in name and fnmatch(other, name)]
        if found:
            return [place for match in found for place in index[match]]
    return []


def _paths(name: str, seen: set[str]) -> Iterator[Path]:
    """The files of the tasks behind a name."""
    if name in seen:
        return
    seen.add(name)
    for kind, path in _matches(name):
        if kind != "group":
            yield path
            continue
        for member in _members(path):
            yield from _paths(member, seen)


def _members(path: Path) -> list[str]:
    tasks = _config(path).get("task") or []
    entries = tasks if isinstance(tasks, list) else [tasks]
    names = [entry.get("task") or entry.get("group") if isinstance(entry, dict) else entry for entry in entries]
    return [name for name in names if isinstance(name, str)]


def _config(path: Path) -> dict[str, Any]:
    from lmms_eval.utils import load_yaml_config

    return load_yaml_config(str(path), mode="simple")


def _functions(path: Path) -> Iterator[tuple[Path, str]]:
    """(module file, name) of every function that a task file and the files it includes name."""
    text = path.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for module, name in _FUNCTION.findall("\n".join(lines)):
        yield path.parent / f"{module.replace('.', '/')}.py", name
    for included in _INCLUDE.findall(text):
        if (path.parent / included).is_file():
            yield from _functions(path.parent / included)


@cache
def _definitions(path: Path) -> dict[str, set[str]]:
    """Every name at the top of a module, with the names and strings in its definition."""
    found: dict[str, set[str]] = {}
    tree = imports.parsed(path) if path.is_file() else ast.Module([], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.col_offset < 8:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        else:
            continue
        for name in names:
            found.setdefault(name, set()).update(_words(node))
    return found


def _words(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        elif isinstance(part, ast.alias):
            yield part.name.split(".")[-1]


def _reached(functions: set[tuple[Path, str]]) -> set[str]:
    """All names and strings that functions can come upon in their modules."""
    found: set[str] = set()
    ahead, seen = list(functions), set(functions)
    while ahead:
        path, name = ahead.pop()
        for word in _definitions(path).get(name, ()):
            found.add(word)
            if (path, word) not in seen:
                seen.add((path, word))
                ahead.append((path, word))
    return found

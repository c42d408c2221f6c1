"""Which modules the code of a task imports that cannot be imported here; read from its files, as in `needs`.

lmms-eval imports a task's code after the model is loaded. What it brings along is not the same everywhere: `decord` has
wheels for few machines, and `latex2sympy2` needs an `antlr4` that stopped working with Python 3.13.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Iterable, Iterator, Set
from functools import cache
from pathlib import Path

_TRIED = {"latex2sympy2": "it needs Python 3.12 or older"}
"""Modules that may be installed and yet not work, with what helps. Trying all others would cost seconds."""
_RARE = {"decord": "it has wheels for Linux on x86_64 and for Windows only"}


def missing(files: Iterable[Path], words: Set[str]) -> dict[str, str]:
    """Modules that a task's code needs, with what is wrong with them.

    Args:
        files: of its functions.
        words: names that those functions use; what is imported in a `try` counts if it is used and has no substitute.
    """
    found, ahead, seen = dict[str, str](), list(files), set(files)
    while ahead:
        path = ahead.pop()
        for name in _imported(path, words):
            inside, module = _file_of(name), name.split(".")[0]
            if inside is not None and inside not in seen:
                seen.add(inside)
                ahead.append(inside)
            elif inside is None and (reason := _reason(module, path)):
                found[module] = reason
    return found


@cache
def parsed(path: Path) -> ast.Module:
    """The source of a module, without the warnings that its authors should have seen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(path.read_text(encoding="utf-8"))


def _reason(module: str, path: Path) -> str | None:
    if module in sys.modules and module not in _TRIED:
        return None
    if (path.parent / module).is_dir() or (path.parent / f"{module}.py").is_file():
        return None  # beside the task's own code
    if importlib.util.find_spec(module) is None:
        return "; ".join(["it is not installed", *filter(None, [_RARE.get(module)])])
    return _tried(module) if module in _TRIED else None


def _tried(module: str) -> str | None:
    try:
        importlib.import_module(module)
    except Exception as error:
        return f"{error}; {_TRIED[module]}"
    return None


def _file_of(name: str) -> Path | None:
    """The file of a module of lmms-eval's tasks, or of a name in it, without importing it."""
    import lmms_eval

    if not name.startswith("lmms_eval.tasks."):
        return None
    stem = Path(lmms_eval.__file__).parents[1].joinpath(*name.split("."))
    places = (stem.with_suffix(".py"), stem / "__init__.py", stem.parent.with_suffix(".py"))
    return next((place for place in places if place.is_file()), None)


def _imported(path: Path, words: Set[str]) -> Iterator[str]:
    """Absolute names of what a file has to import; nothing if it changes where imports are looked for."""
    try:
        tree = parsed(path)
    except (OSError, ValueError, SyntaxError):
        return
    if any(isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path" for node in ast.walk(tree)):
        return
    for node in tree.body:
        if not isinstance(node, ast.Try):
            yield from (full for full, _ in _names(node))
        elif node.handlers:
            substitutes = {name for handler in node.handlers for name in _bound(handler)}
            needed = [pair for part in node.body for pair in _names(part)]
            yield from (full for full, name in needed if name in words and name not in substitutes)


def _names(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """(absolute name, name here) of what an import statement binds."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, alias.asname or alias.name.split(".")[0]) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        yield from ((f"{node.module}.{alias.name}", alias.asname or alias.name) for alias in node.names)


def _bound(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id
        elif isinstance(part, ast.FunctionDef | ast.ClassDef):
            yield part.name
        elif isinstance(part, ast.alias):
            yield part.asname or part.name.split(".")[0]

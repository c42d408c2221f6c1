"""What of the code decides an answer: the engine, the method, and whatever they import, as a hash.

Stored answers of other code must not be taken for the present's. But comments, docstrings, formatting and the name or
place of a file decide nothing, so they do not count.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_PACKAGE = __package__ or "kv_caches"
_ENGINE = (f"{_PACKAGE}.engine", f"{_PACKAGE}.shared")
_LEFT_OUT = {f"{_PACKAGE}.{name}" for name in ("registry", "errors", "models", "config", "values", "source")}
"""They find, check and name. What they pass on is in the fingerprint by itself."""
_ELSEWHERE = {"tgv_kv_harness", "torch", "transformers", "numpy"}
"""Finds files, or is in a run's fingerprint by its version."""


class _Import(NamedTuple):
    name: str  # of a module
    what: str  # taken from it, or empty
    known_as: str


def digest(module: str) -> str:
    """16 hex digits for the method in a module; the same wherever the code lies.

    Followed are imports within kv_caches, within the method's own package, and of modules that were not installed from
    a package; packages that the method's own code imports count with their versions. `READS`, a tuple of paths in the
    method's module, names files whose content counts too.
    """
    own = module.partition(".")[0]
    names, todo = set[str](), [*_ENGINE, module]
    while todo:
        name = todo.pop()
        if name not in names:
            names.add(name)
            todo += [found.name for found in _imports(name) if _is_followed(found.name, name, own)]
    parts = sorted(json.dumps([_content(name), sorted(_edges(name, own))]) for name in names)
    reads = getattr(importlib.import_module(module), "READS", ())
    files = [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in reads]
    return hashlib.sha256(json.dumps([parts, files]).encode()).hexdigest()[:16]


def _edges(name: str, own: str) -> Iterator[list[str]]:
    """What a module imports: of code that is followed its content, of anything else its name."""
    for found in _imports(name):
        if _is_followed(found.name, name, own):
            yield [_content(found.name), found.what, found.known_as]
        elif found.name not in _LEFT_OUT:
            outside = own != _PACKAGE and name.partition(".")[0] != _PACKAGE
            yield [found.name, found.what, found.known_as, _version(found.name.partition(".")[0]) if outside else ""]


@cache
def _is_followed(name: str, importer: str, own: str) -> bool:
    top = name.partition(".")[0]
    if name in _LEFT_OUT or top in _ELSEWHERE or top in sys.stdlib_module_names or _file(name) is None:
        return False
    if top == _PACKAGE:
        return True
    installed = {"site-packages", "dist-packages"} & set(_file(name).parts)  # type: ignore[union-attr]
    return importer.partition(".")[0] != _PACKAGE and (top == own or not installed)


@cache
def _file(name: str) -> Path | None:
    """The source of a module; None for what has none or is no module."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


@cache
def _tree(name: str) -> ast.Module:
    path = _file(name)
    if path is None:
        raise ModuleNotFoundError(f"{name} has no source file")
    return ast.parse(path.read_bytes())


@cache
def _content(name: str) -> str:
    """Hash of a module's code without its imports."""
    return hashlib.sha256(json.dumps(_shape(_tree(name))).encode()).hexdigest()


def _shape(node: Any) -> Any:
    """A syntax tree as lists, without places, imports and bare texts; the same in every version of Python."""
    if isinstance(node, ast.AST):
        fields = ((name, _shape(value)) for name, value in ast.iter_fields(node))
        return [type(node).__name__, *(field for field in fields if field[1] not in ([], "None"))]
    if isinstance(node, list):
        return [_shape(part) for part in node if not _decides_nothing(part)]
    return repr(node)


def _decides_nothing(node: Any) -> bool:
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return text or isinstance(node, ast.Import | ast.ImportFrom)


@cache
def _imports(name: str) -> tuple[_Import, ...]:
    """All imports of a module, those inside functions too."""
    path, found = _file(name), []
    package = name if path is not None and path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(_tree(name)):
        if isinstance(node, ast.Import):
            found += [_Import(alias.name, "", alias.asname or alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                module = f"{base}.{alias.name}"
                known_as = alias.asname or alias.name
                found.append(
                    _Import(module, "", known_as) if _is_module(module) else _Import(base, alias.name, known_as)
                )
    return tuple(found)


def _is_module(name: str) -> bool:
    return name.partition(".")[0] not in (*_ELSEWHERE, *sys.stdlib_module_names) and _file(name) is not None


@cache
def _version(top: str) -> str:
    if top in _ELSEWHERE or top in sys.stdlib_module_names or top == _PACKAGE:
        return ""
    for name in importlib.metadata.packages_distributions().get(top, [top]):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""

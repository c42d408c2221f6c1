"""No worked case of method_cases.json lies unused: each is the parameter of some test."""

import importlib
from pathlib import Path

from .support import CASES


def cases_tested():
    """Ids of the cases that the test functions beside this file are parametrised with."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"{__package__}.{path.stem}")
        for function in vars(module).values():
            for mark in getattr(function, "pytestmark", []):
                if mark.name == "parametrize":
                    yield from (value["id"] for value in mark.args[1] if isinstance(value, dict) and "id" in value)


def test_every_case_is_used():
    ids = [case["id"] for case in CASES["cases"]]
    assert len(ids) == len(set(ids)) == 68
    assert set(ids) == set(cases_tested())

"""What the command lines of `analysis` have in common."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .runs import Results, load


def add_folders(parser: argparse.ArgumentParser) -> None:
    """Results folders, and what is let through in them."""
    parser.add_argument("folders", type=Path, nargs="+", help="results folder, e.g. results/runs/quickstart")
    parser.add_argument(
        "--allow-failures", action="store_true", help="go on although samples failed or files cannot be used"
    )
    parser.add_argument("--allow-unjudged", action="store_true", help="go on although answers were not judged")


def loaded(options: argparse.Namespace) -> Results:
    """The results of those folders; what was left out is said."""
    results = load(options.folders, options.allow_failures, options.allow_unjudged)
    for line in results.refused:
        print(f"note: {line}", file=sys.stderr)
    return results

"""Table 4 from the figures of benchmarks/efficiency.py: time, memory, and the share of the roofline reached.

Roofline: the time in which the machine can read the weights and the stored prompt entries once, at the bandwidth that
was measured beside the figures. `fits` is computed: prompts whose caches fit beside the weights and one prefill.
Tokens per second are end to end: the prefill, then so many steps of the median time.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
from tabulate import tabulate

from .errors import ResultsError, told

SCHEMA = 1
_MIB = 2**-20
COLUMNS = {
    "prefill [s]": ("prefill_s", 1, ".2f"),
    "scoring [s]": ("scoring_s", 1, ".3f"),
    "step [ms]": ("step_s", 1e3, ".1f"),
    "p95 [ms]": ("step_p95_s", 1e3, ".1f"),
    "roofline [%]": ("roofline_share", 100, ".0f"),
    "128: tokens/s": ("tokens_per_s_128", 1, ".1f"),
    "512": ("tokens_per_s_512", 1, ".1f"),
    "1500": ("tokens_per_s_1500", 1, ".1f"),
    "KV [MiB]": ("kv_prompt_bytes", _MIB, ".1f"),
    "room [MiB]": ("kv_room_bytes", _MIB, ".1f"),
    "prefill peak [MiB]": ("peak_prefill_bytes", _MIB, ".0f"),
    "decode peak [MiB]": ("peak_decode_bytes", _MIB, ".0f"),
    "fits": ("largest_batch", 1, ".0f"),
}


def load(path: Path) -> dict[str, Any]:
    """A file of figures.

    Raises:
        ResultsError: it is not one, or of another version.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ResultsError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or not content.get("rows"):
        raise ResultsError(f"{path}: not a file of benchmarks/efficiency.py of version {SCHEMA} with rows in it")
    return content


def frame(content: dict[str, Any]) -> pd.DataFrame:
    """As shown: a row per configuration; one that failed says why."""
    shown = []
    for row in content["rows"]:
        cells = {"N": row["length"], "batch": row["batch"], "method": row["method"]}
        cells["keep"] = f"{100 * row['retention']:g} %"
        for name, (key, factor, form) in COLUMNS.items():
            cells[name] = "" if row.get(key) is None else f"{factor * row[key]:{form}}"
        cells["note"] = row.get("error", "")
        shown.append(cells)
    found = pd.DataFrame(shown)
    return found if found["note"].any() else found.drop(columns="note")


def as_text(content: dict[str, Any], markdown: bool = False) -> str:
    """Title, table and notes."""
    rows = content["rows"]
    title = f"Table 4: time and memory, {rows[0]['shape']} shape, {content['device']}"
    note = f"{content['copy_bandwidth'] / 1e9:.1f} GB/s read; {rows[0]['new']} new tokens measured. {_notes()}"
    body = tabulate(
        frame(content),
        headers="keys",
        tablefmt="pipe" if markdown else "simple",
        showindex=False,
        disable_numparse=True,
    )
    return f"{f'**{title}**' if markdown else title}\n\n{body}\n\n{note}"


def _of_file(path: Path, markdown: bool) -> str:
    content = load(path)
    try:
        return as_text(content, markdown)
    except (LookupError, TypeError, ValueError) as error:
        raise ResultsError(f"{path}: {error} is missing or not as expected; measure again") from error


def _notes() -> str:
    return " ".join((__doc__ or "").split("\n\n", 1)[1].split())


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m analysis.speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", help="results/efficiency/*.json")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args(arguments)

    def make() -> int:
        print("\n\n".join(_of_file(path, options.markdown) for path in options.files))
        return 0

    return told(make)


if __name__ == "__main__":
    sys.exit(main())

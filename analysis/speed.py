"""Table 4 from the figures of benchmarks/efficiency.py: time, memory, and the share of the roofline reached.

Roofline: the time in which the machine can read the weights and the stored prompt entries once, at the bandwidth that
was measured beside the figures. `fits` is computed: prompts whose caches fit beside the weights and one prefill.
`room` is what is reserved for generated tokens, those included that are there.
Tokens per second are end to end: the prefill, then so many steps of the median time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from tabulate import tabulate

from . import gains, speed_plot, style
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


def frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """As shown: a row per configuration; one that failed says why."""
    shown = []
    for row in rows:
        cells = {"N": row["length"], "batch": row["batch"], "method": gains.method_name(row), "keep": gains.share(row)}
        for name, (key, factor, form) in COLUMNS.items():
            cells[name] = "" if row.get(key) is None else f"{factor * row[key]:{form}}"
        cells["note"] = row.get("error", "")
        shown.append(cells)
    found = pd.DataFrame(shown)
    return found if found["note"].any() else found.drop(columns="note")


def title(content: dict[str, Any]) -> str:
    """Of the table."""
    return f"Table 4: time and memory, {content['rows'][0]['shape']} shape, {content['device']}"


def parts(content: dict[str, Any]) -> Iterator[tuple[str, pd.DataFrame, str]]:
    """Heading, table, note: one per length, what eviction gains, and the paper's claims where they can be compared."""
    rows = content["rows"]
    for length in sorted({row["length"] for row in rows}):
        yield f"N = {length}", frame([row for row in rows if row["length"] == length]).drop(columns="N"), ""
    yield from compared(rows)


def compared(rows: list[dict[str, Any]]) -> Iterator[tuple[str, pd.DataFrame, str]]:
    """The same, of what is compared with the full cache."""
    gained, paper = gains.gains(rows), gains.beside_paper(rows)
    if len(gained):
        yield "What eviction gains", gained, gains.GAINS_NOTE
    if len(paper):
        yield "The paper's claims beside this run", paper, gains.PAPER_NOTE


def as_text(content: dict[str, Any], markdown: bool = False) -> str:
    """Title, tables and notes."""
    table_style, mark = ("pipe", "**") if markdown else ("simple", "")
    lines = [f"{mark}{title(content)}{mark}"]
    for heading, table, note in parts(content):
        body = tabulate(_once(table), headers="keys", tablefmt=table_style, showindex=False, disable_numparse=True)
        lines += [f"{mark}{heading}{mark}", body, *([note] if note else [])]
    return "\n\n".join([*lines, *notes(content)])


def notes(content: dict[str, Any]) -> list[str]:
    """What has to be known to read it."""
    rows = content["rows"]
    measured = ", ".join(map(str, sorted({row["new"] for row in rows})))
    found = [f"{content['copy_bandwidth'] / 1e9:.1f} GB/s read; {measured} new tokens measured. {_explained()}"]
    if any(row.get("prefilled", row["batch"]) != row["batch"] for row in rows):
        found.append(
            "One prompt of a batch was prefilled and its cache repeated: prefill and scoring are what that one took "
            "times the batch, the prefill's peak is its own."
        )
    return found + [line for line in [unfinished(content)] if line]


def unfinished(content: dict[str, Any]) -> str:
    """How much of what was asked for is still to be measured; nothing if all was tried."""
    if not content.get("left"):
        return ""
    command = "the same command" + ("" if content.get("resumes") else " with --resume")
    return f"{content['left']} of {content['asked']} configurations are not measured yet; {command} goes on"


def _once(table: pd.DataFrame) -> pd.DataFrame:
    """Lengths and batches only where they change."""
    shown = table.astype(str)
    repeated = pd.Series(True, index=table.index)
    for name in [name for name in ("N", "batch") if name in table]:
        repeated &= table[name] == table[name].shift()
        shown.loc[repeated, name] = ""
    return shown


def _draw(path: Path, picture: Path, width_mm: float) -> None:
    formats = style.wanted_formats(picture.suffix.removeprefix("."))
    style.save(tried(path, lambda content: speed_plot.plot(content, width_mm)), picture.with_suffix(""), formats)


def tried(path: Path, make: Callable[[dict[str, Any]], Any]) -> Any:
    """Something made of a file of figures.

    Raises:
        ResultsError: there is none, or it lacks what is needed.
    """
    content = load(path)
    try:
        return make(content)
    except ResultsError as error:
        raise ResultsError(f"{path}: {error}") from error
    except (LookupError, TypeError, ValueError) as error:
        raise ResultsError(f"{path}: {error} is missing or not as expected; measure again") from error


def _explained() -> str:
    return " ".join((__doc__ or "").split("\n\n", 1)[1].split())


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m analysis.speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", help="results/efficiency/*.json")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--plot", type=Path, help="draw step time against N into this file (.png, .svg or .pdf)")
    parser.add_argument("--width", type=style.width, default=style.README_MM, help="of the picture, in mm")
    options = parser.parse_args(arguments)
    if options.plot and len(options.files) > 1:
        parser.error("argument --plot: one file of figures is drawn at a time")

    def make() -> int:
        if options.plot:
            _draw(options.files[0], options.plot, options.width)
        print("\n\n".join(tried(path, lambda content: as_text(content, options.markdown)) for path in options.files))
        return 0

    return told(make)


if __name__ == "__main__":
    sys.exit(main())

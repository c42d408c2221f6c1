"""One HTML page of a results folder: tables that sort, plots, retention maps, answers, configuration and failures.

The page is one file that opens from disk without network. Everything that models, tasks or files say is escaped, and no
script but the page's own may run.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from . import efficiency, measured, pareto, retention_map, speed_plot, style, tables
from .errors import ResultsError, told
from .kept import samples
from .names import model_name, task_name
from .options import add_folders, loaded
from .report_records import answers, configurations, failures
from .report_table import frame_table, score_tables
from .runs import Results
from .table import score_table
from .units import measures_of
from .writing import write_text

HERE = Path(__file__).parent
_MAPS = 6
"""Most retention maps on a page."""


def page(results: Results, title: str, plots: Sequence[Path] = (), folder: Path | None = None) -> str:
    """The whole page; with these plots (SVG files) in it, or ones drawn for it, and the figures beside the folder."""
    script = (HERE / "sort.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("report.jinja").render(
        title=title,
        summary=_summary(results),
        sections=_sections(results, [_embedded(path) for path in plots] or _plots(results), folder),
        script=Markup(script),
        script_hash=f"sha256-{digest}",
    )


def _summary(results: Results) -> str:
    scores = results.scores
    models = ", ".join(model_name(model) for model in sorted(set(scores["model"])))
    configurations = len(scores[["model", "name", "retention"]].drop_duplicates())
    samples_of, failed = scores["samples"], int(scores["failed"].sum())
    return (
        f"{models}: {configurations} configurations, {scores['task'].nunique()} tasks, "
        f"{samples_of.min()} to {samples_of.max()} samples per task, {failed} failed."
    )


def _sections(results: Results, plots: list[dict[str, Any]], folder: Path | None) -> list[dict[str, Any]]:
    overview = frame_table(score_table(results.scores))
    made, missing = score_tables(results)
    made += [frame_table(frame, title, notes) for title, frame, _, notes in efficiency.tables(results)]
    return [
        _section(
            "overview",
            "Overview",
            [overview],
            [f"{measures_of(results.scores)}; with the share of the full cache's score."],
        ),
        _section("tables", "Tables", made, [tables.LEGEND, "Bold: best of its budget; underlined: second.", *missing]),
        _section("plots", "Plots", plots),
        _section("measured", "Time and memory", *_measured(folder), empty="bash scripts/efficiency.sh measures them."),
        _section("maps", "What was kept", *_maps(results), empty="Run with KV_RECORD_KEPT=1 to see it."),
        _section("answers", "Answers", answers(results), empty="No per-sample records were found."),
        _section("configuration", "Configuration", configurations(results)),
        _section("failures", "Failures", *failures(results), empty="None."),
    ]


def _section(
    name: str, title: str, entries: list[dict[str, Any]], notes: list[str] | None = None, empty: str = "Nothing."
) -> dict[str, Any]:
    return {"id": name, "title": title, "entries": entries, "notes": notes or [], "empty": empty}


def _plots(results: Results) -> list[dict[str, Any]]:
    found = []
    for against in pareto.AXES:
        try:
            table = pareto.points(results.scores, against)
        except ResultsError as error:
            found.append({"title": f"Score against {against}", "heads": [], "rows": [], "notes": [str(error)]})
            continue
        for model, mine in table.groupby("model"):
            alt = f"{model_name(str(model))}: score against {against}"
            found.append(_picture(pareto.plot(mine, against), alt, "svg"))
    return found


def _measured(folder: Path | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Table 4 and a picture of every file of figures, and a line for each that cannot be shown."""
    contents, left_out = measured.contents(folder) if folder else ({}, [])
    entries = []
    for content in contents.values():
        entries += [frame_table(table, title, notes) for title, table, notes in measured.frames(content)]
        with suppress(ResultsError):  # nothing in it was measured
            alt = f"decode step against context length, {content['device']}"
            entries.append(_picture(speed_plot.plot(content), alt, "svg"))
    return entries, left_out


def _maps(results: Results) -> tuple[list[dict[str, Any]], list[str]]:
    """One sample of each task, TGV-KV and up to two others."""
    by_task: dict[tuple[str, str], list[Any]] = {}
    for sample in samples(results):
        by_task.setdefault((sample.model, sample.task), []).append(sample)
    pictures = []
    for (model, task), found in list(by_task.items())[:_MAPS]:
        first = min(found, key=lambda sample: str(sample.doc_id)).doc_id
        try:
            shown = retention_map.chosen([sample for sample in found if sample.doc_id == first], "", None, 3)
            alt = f"{model_name(model)}, {task_name(task)}, sample {first}"
            pictures.append(_picture(retention_map.plot(shown, style.README_MM), alt, "png"))
        except ResultsError as error:
            pictures.append({"title": task_name(task), "heads": [], "rows": [], "notes": [str(error)]})
    return pictures, [" ".join(str(retention_map.__doc__).split("\n\n")[1].split())] if pictures else []


def _picture(figure: Any, alt: str, kind: str) -> dict[str, Any]:
    data = io.BytesIO()
    figure.savefig(data, format=kind, dpi=110, metadata={"Date": None} if kind == "svg" else None)
    style.plt.close(figure)
    return _inline(data.getvalue(), alt, kind)


def _embedded(path: Path) -> dict[str, Any]:
    return _inline(path.read_bytes(), path.stem, "svg")


def _inline(data: bytes, alt: str, kind: str) -> dict[str, Any]:
    mime = {"svg": "image/svg+xml", "png": "image/png"}[kind]
    source = f"data:{mime};base64,{base64.b64encode(data).decode()}"
    return {"title": alt, "alt": alt, "source": source, "notes": []}


def write(results: Results, folder: Path, path: Path | None = None, plots: Sequence[Path] = ()) -> Path:
    """The page of a folder, as report.html in it; see `page`."""
    path = path or folder / "report.html"
    write_text(path, page(results, f"Results of {folder.resolve().name}", plots, folder))
    return path


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m analysis.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_folders(parser)
    parser.add_argument("--output", type=Path, help="file (default: report.html in the first folder)")
    options = parser.parse_args(arguments)

    def make() -> int:
        print(f"Report {write(loaded(options), options.folders[0], options.output)}")
        return 0

    return told(make)


if __name__ == "__main__":
    sys.exit(main())

"""Everything a results folder allows, from one reading of it: tables, plots and report.html below the folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import measured, pareto, report, style, tables
from .errors import ResultsError, told
from .options import add_folders, loaded
from .runs import Results


def plots(results: Results, folder: Path) -> tuple[list[Path], list[str]]:
    """Score against everything measured at page width, against retention at column width too.

    Returns:
        What was written, and a line for each plot that could not be made.
    """
    written, left_out = [], []
    for against in pareto.AXES:
        try:
            written += pareto.draw(results.scores, folder / f"pareto-{against}", against)
        except ResultsError as error:
            left_out.append(f"score against {against}: not made, {error}")
    written += pareto.draw(results.scores, folder / "pareto-retention-column", width_mm=style.COLUMN_MM)
    return written, left_out


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m analysis.artefacts", description=__doc__)
    add_folders(parser)
    options = parser.parse_args(arguments)

    def make() -> int:
        results, folder = loaded(options), options.folders[0]
        texts, left_out = tables.write(results, folder / "tables")
        left_out += tables.write_measured(folder, folder / "tables")[1]
        written, not_drawn = plots(results, folder / "plots")
        steps = measured.draw(measured.contents(folder)[0], folder / "plots")
        print("\n\n".join(texts))
        print("\n" + "\n".join(left_out + not_drawn))
        print(f"Tables in {folder / 'tables'}, {len(written + steps)} plot files in {folder / 'plots'}")
        drawn = [path for path in written if path.suffix == ".svg" and "-column" not in path.name]
        print(f"Report {report.write(results, folder, plots=drawn)}")
        return 0

    return told(make)


if __name__ == "__main__":
    sys.exit(main())

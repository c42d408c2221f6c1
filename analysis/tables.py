"""The paper's tables from a results folder: terminal text, Markdown, CSV and LaTeX.

Each cell: score (share of the full cache's), * where the 95 % interval of the paired difference excludes the full
cache, @ the share kept where it is more than 2 % off the budget, [paper ...] the paper's number and ours minus it. A
cell without a score says why. Tables 1 (ablations), 2 (vision-dominant), 3 (captions), 4 (memory and time), 5
(components), 6 (token pruning), one of each per model; a table that the results have nothing for is named and left out.
What results/efficiency holds beside results/runs is another Table 4 per file: time and memory by length and batch.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from tabulate import tabulate

from . import efficiency, measured, speed
from .cells import Cell, Cells
from .errors import told
from .layouts import Layout, layouts
from .names import model_name, task_name
from .options import add_folders, loaded
from .runs import Results
from .units import measures
from .writing import as_csv, file_name, write_text

LEGEND = (
    "score (share of the full cache) * 95 % interval excludes the full cache; @ share kept where it is over 2 % off "
    "the budget; [paper: the paper's number, ours minus it]."
)
_LATEX = str.maketrans(
    {char: f"\\{char}" for char in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)


@dataclass(frozen=True)
class Table:
    """A layout with its cells, a list of them per row."""

    layout: Layout
    cells: list[list[Cell]]

    @property
    def title(self) -> str:
        """As a heading."""
        name = f"Table {self.layout.number}" if self.layout.number.isdigit() else "Table"
        return f"{name}: {self.layout.title}, {model_name(self.layout.model)}"

    @property
    def has_scores(self) -> bool:
        """Something besides the full cache was scored."""
        pairs = zip(self.layout.rows, self.cells)
        return any(cell.score is not None for row, cells in pairs if row.name != "full" for cell in cells)

    @property
    def lacks(self) -> str:
        """What became of a table without scores."""
        pairs = zip(self.layout.rows, self.cells)
        tried = any(cell.reason != "not run" for row, cells in pairs if row.name != "full" for cell in cells)
        return "has a score" if tried else "was run"

    @property
    def measures(self) -> str:
        """Metric and unit of every column with a score."""
        columns = zip(self.layout.tasks, zip(*self.cells))
        return measures((task, cell.metric, cell.unit) for task, column in columns for cell in column if cell.metric)

    @property
    def notes(self) -> list[str]:
        """What stands below it, beside the legend."""
        return [f"{self.measures}.", *self.layout.notes]

    def ranks(self) -> dict[tuple[int, int], int]:
        """(row, column) -> 1 for the best score of its budget and task, 2 for the next; the full cache is no rival."""
        found: dict[tuple[int, int], int] = {}
        budgets = {row.lead[0] for row in self.layout.rows if row.name != "full"}
        for budget in budgets:
            rows = [i for i, row in enumerate(self.layout.rows) if row.lead[0] == budget and row.name != "full"]
            for column in range(len(self.layout.tasks)):
                scores = {i: self.cells[i][column].score for i in rows}
                known = sorted({round(s, 1) for s in scores.values() if s is not None}, reverse=True)[:2]
                for i, score in scores.items():
                    if score is not None and len(rows) > 1 and round(score, 1) in known:
                        found[i, column] = 1 + known.index(round(score, 1))
        return found

    def frame(self, best: str = "{}", second: str = "{}") -> pd.DataFrame:
        """What is shown, as text; the marks go around the best and the second score of each budget."""
        marks, ranks, lines = {1: best, 2: second}, self.ranks(), []
        for i, (row, cells) in enumerate(zip(self.layout.rows, self.cells)):
            shown = []
            for j, cell in enumerate(cells):
                mark = marks.get(ranks.get((i, j), 0), "{}")
                shown.append(cell.text(None if cell.score is None else mark.format(f"{cell.score:.1f}")))
            lines.append([*row.lead, *shown])
        return pd.DataFrame(lines, columns=[*self.layout.heads, *map(task_name, self.layout.tasks)])


def tables(results: Results) -> list[Table]:
    """All tables of scores, those without a score among them."""
    cells = Cells(results)
    return [
        Table(lay, [[cells.get(lay.model, row.name, row.retention, task) for task in lay.tasks] for row in lay.rows])
        for lay in layouts(results.grid)
    ]


def as_text(frame: pd.DataFrame, markdown: bool = False, numbers_right: bool = False) -> str:
    """Aligned columns, plain or Markdown; all but the first to the right if they are numbers."""
    style, align = "pipe" if markdown else "simple", "right" if numbers_right else "left"
    columns = ["left"] + [align] * (len(frame.columns) - 1)
    return tabulate(frame, headers="keys", tablefmt=style, showindex=False, colalign=columns, disable_numparse=True)


def as_latex(frame: pd.DataFrame, title: str, label: str, ranks: dict[tuple[int, int], int], leads: int) -> str:
    """booktabs; the best score of a budget bold, the second underlined."""
    css = pd.DataFrame("", index=frame.index, columns=frame.columns)
    for (row, column), rank in ranks.items():
        css.iat[row, column + leads] = "textbf:--rwrap;" if rank == 1 else "underline:--rwrap;"
    styler = frame.style.format(escape="latex").format_index(escape="latex", axis=1).hide(axis="index")
    return styler.apply(lambda _: css, axis=None).to_latex(
        hrules=True,
        caption=_escaped(title),
        label="tab:" + re.sub(r"[^\w.:+-]", "-", label),
        position_float="centering",
        column_format="l" * leads + "r" * (len(frame.columns) - leads),
    )


def _escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return text.translate(_LATEX)


def as_rows(table: Table) -> pd.DataFrame:
    """Numbers instead of text: a row per cell."""
    rows = []
    for row, cells in zip(table.layout.rows, table.cells):
        for task, cell in zip(table.layout.tasks, cells):
            where = {"table": table.layout.number, "model": table.layout.model, "configuration": row.name}
            rows.append({**where, "retention": row.retention, "task": task, **vars(cell)})
    return pd.DataFrame(rows).rename(columns={"reason": "missing"}).round(4)


def write(results: Results, folder: Path) -> tuple[list[str], list[str]]:
    """All tables the results allow, as .md, .csv and .tex files.

    Returns:
        The tables as terminal text, and a line for each that could not be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts, left_out = [], []
    for table in tables(results):
        if not table.has_scores:
            left_out.append(f"{table.title}: not made, nothing of it {table.lacks}")
            continue
        notes = [LEGEND, *table.notes]
        path, plain, leads = folder / table.layout.slug, table.frame(), len(table.layout.heads)
        marked = as_text(table.frame("**{}**", "<u>{}</u>"), markdown=True)
        _write(path, ".md", f"**{table.title}**\n\n{marked}\n\n" + "\n".join(notes) + "\n")
        _write(path, ".csv", as_csv(as_rows(table)))
        _write(path, ".tex", as_latex(plain, f"{table.title} ({table.measures})", path.name, table.ranks(), leads))
        texts.append("\n".join([table.title, as_text(plain), *notes]))
    for title, frame, numbers, notes in efficiency.tables(results):
        path = folder / f"table4-{file_name(numbers['model'].iloc[0])}"
        _write(path, ".md", f"**{title}**\n\n{as_text(frame, markdown=True)}\n\n" + "\n".join(notes) + "\n")
        _write(path, ".csv", as_csv(numbers))
        _write(path, ".tex", as_latex(frame, title, path.name, {}, 2))
        texts.append("\n".join([title, as_text(frame), *notes]))
    return texts, left_out


def write_measured(results_folder: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Table 4 of every file of figures that belongs to a results folder, as .md, .csv and .tex files; see `write`."""
    folder.mkdir(parents=True, exist_ok=True)
    contents, left_out = measured.contents(results_folder)
    texts = []
    for name, content in contents.items():
        path = folder / f"table4-{name}"
        _write(path, ".md", speed.as_text(content, markdown=True) + "\n")
        _write(path, ".csv", as_csv(pd.DataFrame(content["rows"])))
        parts = enumerate(measured.frames(content))
        tex = [as_latex(table, title, f"{path.name}-{part}", {}, 2) for part, (title, table, _) in parts]
        _write(path, ".tex", "\n".join(tex))
        texts.append(speed.as_text(content))
    return texts, left_out


def _write(path: Path, ending: str, text: str) -> None:
    write_text(path.with_name(path.name + ending), text)


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m analysis.tables", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_folders(parser)
    parser.add_argument("--output", type=Path, help="where the files go (default: tables/ in the first folder)")
    options = parser.parse_args(arguments)

    def make() -> int:
        output = options.output or options.folders[0] / "tables"
        texts, left_out = write(loaded(options), output)
        times, not_made = write_measured(options.folders[0], output)
        print("\n\n".join(texts + times))
        print("\n" + "\n".join([*left_out, *not_made, f"Tables (.md, .csv, .tex) in {output}"]))
        return 0

    return told(make)


if __name__ == "__main__":
    sys.exit(main())

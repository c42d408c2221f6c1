"""What analysis writes: cells that no program runs, whole files, any text."""

import io
import os
import sys

import pandas as pd
import pytest

from analysis import writing
from analysis.table import main

from .test_table import write

NOT_UTF8 = os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_cell_that_begins_as_a_formula_does_is_text(text):
    as_text = pd.DataFrame({f"'{text}": [f"'{text}"]})
    assert writing.as_csv(pd.DataFrame({text: [text]})) == as_text.to_csv(index=False)


def test_numbers_and_dashes_stay():
    frame = pd.DataFrame({"a": [-0.5, 2.0], "b": ["-1.5e-3", "+2"], "c": ["-", "plain"], "d": [None, 1.0]})
    assert writing.as_csv(frame) == frame.to_csv(index=False)


def test_a_file_is_whole_or_the_old_one(tmp_path, monkeypatch):
    writing.write_text(tmp_path / "a.md", NOT_UTF8)
    assert (tmp_path / "a.md").read_text() == "caf\\udce9"
    monkeypatch.setattr(writing.Path, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        writing.write_text(tmp_path / "a.md", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.md"]
    assert (tmp_path / "a.md").read_text() == "caf\\udce9"


def test_a_folder_whose_name_is_not_utf8_has_its_table(tmp_path, monkeypatch):
    folder = tmp_path / NOT_UTF8
    folder.mkdir()
    write(folder, f"full{NOT_UTF8}", 0.8)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    assert main([str(folder)]) == 0
    sys.stdout.flush()
    assert b"80.0 (100 %)" in sys.stdout.buffer.getvalue()

"""Arguments of the benchmarks that cannot be are refused before anything is measured."""

import pytest

from benchmarks import check, efficiency, options, plan


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch):
    monkeypatch.setattr(efficiency, "copy_bandwidth", None)
    monkeypatch.setattr(efficiency, "run_apart", None)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--lengths", "0"),
        ("--lengths", "-5"),
        ("--lengths", "x"),
        ("--batches", "1,0"),
        ("--retentions", "nan"),
        ("--new", "0"),
        ("--repeats", "0"),
        ("--seconds", "nan"),
        ("--seconds", "-1"),
        ("--device", "gpu"),
    ],
)
def test_a_value_that_cannot_be_is_named(option, value, capsys):
    with pytest.raises(SystemExit) as stopped:
        efficiency.main([option, value])
    assert stopped.value.code == 2
    assert f"argument {option}: " in capsys.readouterr().err


def test_where_nothing_can_be_written_nothing_is_measured(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert efficiency.main(["--output", str(tmp_path)]) == 2
    assert efficiency.main(["--output", str(tmp_path / "file" / "x.json")]) == 2
    assert capsys.readouterr().err.count("error: --output ") == 2


def test_a_check_that_does_not_exist_is_no_success(capsys):
    with pytest.raises(SystemExit) as stopped:
        check.main(["decoed"])
    assert stopped.value.code == 2
    assert "there is no check 'decoed'; there are work, " in capsys.readouterr().err


@pytest.mark.parametrize("value", ["0", "nan", "inf", "-1", "x"])
def test_seconds_of_a_check_are_a_number(value, capsys):
    with pytest.raises(SystemExit) as stopped:
        check.main(["--seconds", value])
    assert stopped.value.code == 2
    assert f"argument --seconds: {value!r}: a number of seconds above 0 is needed" in capsys.readouterr().err


def test_the_help_says_what_runs_without_sizes(capsys):
    with pytest.raises(SystemExit) as stopped:
        efficiency.main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for option in ("--grid", "--prefill {all,one}", "--graph {auto,on,off}", "--resume", "--seconds"):
        assert option in text
    read = {name: options.read([*more, "--device", "cpu"], "") for name, more in (("cpu", ()), ("grid", ("--grid",)))}
    counts = {name: len(list(plan.cells(one))) for name, one in read.items()}
    assert f"{counts['cpu']} configurations" in text
    assert f"{counts['grid']} configurations" in text

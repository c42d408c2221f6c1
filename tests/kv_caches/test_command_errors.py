"""`kv_caches.inspect` and `.profile`: what is typed wrong is one line, before a model is loaded."""

import pytest

from kv_caches import inspect, profile


@pytest.mark.parametrize("command", [inspect, profile])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--limit", "0", "--limit 0: a whole number from 1"),
        ("--limit", "-1", "--limit -1: a whole number from 1"),
        ("--device", "gpu", "--device gpu: cpu, cuda or cuda:<n>"),
        ("--dtype", "float33", "--dtype float33 is unknown; allowed: auto, float32, float16, bfloat16. Did you mean"),
        ("--output", "{folder}/empty/x", "empty/x: cannot be written: Not a directory"),
        ("--prompts", "{folder}/empty", "empty: there is no line in it"),
        ("--model", "{folder}/gone", "gone: no checkpoint that can be loaded"),
    ],
)
def test_an_option_is_named_with_what_is_allowed(command, option, value, message, tmp_path, capsys):
    (tmp_path / "p").write_text('{"prompt": "hi"}\n')
    (tmp_path / "empty").write_text("")
    given = {"--model": "x", "--prompts": f"{tmp_path}/p", "--output": f"{tmp_path}/out", "--retention": "0.1"}
    given[option] = value.format(folder=tmp_path)
    assert command.main([part for pair in given.items() for part in pair]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_no_method_to_inspect_is_an_error(tmp_path, capsys):
    needed = ["--model", "x", "--prompts", "p", "--output", str(tmp_path)]
    assert inspect.main([*needed, "--methods", ","]) == 2
    assert capsys.readouterr().err == "error: --methods ',' names none\n"


def test_a_method_that_changes_the_prefill_cannot_be_inspected_beside_others(tmp_path, capsys):
    needed = ["--model", "x", "--prompts", "p", "--output", str(tmp_path)]
    assert inspect.main([*needed, "--methods", "tgv_kv,fastv"]) == 2
    assert capsys.readouterr().err == "error: fastv changes the prefill and cannot share one; run it alone\n"

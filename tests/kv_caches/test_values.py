"""Numbers, words, switches and YAML files: right ones are taken as they are meant, all others are one line."""

import math

import pytest

from kv_caches import ConfigError, KVConfig
from kv_caches.values import number, one_of, read_yaml, switch, whole

MANY = "9" * 5000
NO_WHOLE_NUMBERS = [
    "",
    " ",
    "x",
    "-1",
    "+5",
    "1.5",
    "1e3",
    "0x10",
    "1_0",
    "²",
    "٣",
    "\N{FULLWIDTH DIGIT FIVE}",
    MANY,
    "1\n2",
    "\0",
]
NO_WHOLE_NUMBERS += [True, None, 1.5, math.nan, math.inf, -1, 10**5000, [1], {1: 2}]
NO_NUMBERS = ["", "x", "nan", "inf", "-inf", "1e999", "0", "-1", "1_0", "²", "٣", MANY, "0x10", True, None]
NO_NUMBERS += [0, -1, math.nan, math.inf, 10**5000, [1]]


def refusal(call, *arguments, **options):
    with pytest.raises(ConfigError) as refused:
        call(*arguments, **options)
    line = str(refused.value)
    assert line.isprintable()
    assert len(line) < 500
    return line


@pytest.mark.parametrize(
    "value", NO_WHOLE_NUMBERS, ids=lambda value: f"{value!r:.12}" if value != 10**5000 else "10**5000"
)
def test_no_whole_number_is_one_line_with_its_name(value):
    assert refusal(whole, "NAME", value).startswith("NAME=")


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: f"{value!r:.12}" if value != 10**5000 else "10**5000")
def test_no_number_is_one_line_with_its_name(value):
    assert refusal(number, "NAME", value, most=1e6).startswith("NAME=")


def test_numbers_are_taken_as_they_are_meant():
    assert [whole("N", value) for value in ("7", " 7 ", "007", 7)] == [7] * 4
    assert [number("N", value) for value in ("2.5", "25e-1", "+2.5", 2.5)] == [2.5] * 4
    assert refusal(whole, "N", "9", 1, 8) == "N=9: a whole number from 1 to 8 is needed"
    assert refusal(number, "N", "9", most=8) == "N=9: a number above 0 and up to 8 is needed"


def test_words_and_switches():
    assert one_of("N", "sdpa", ("eager", "sdpa")) == "sdpa"
    for value in ("spda", 5, None, ["sdpa"]):
        assert refusal(one_of, "N", value, ("eager", "sdpa")).startswith("N=")
    assert [switch("N", {"N": value}) for value in ("", "0", "1")] + [switch("N", {})] == [False, False, True, False]
    assert refusal(switch, "N", {"N": "yes"}) == "N=yes: 1 (yes) or 0 (no) is needed"


BOMB = "\n".join([f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]" for n in range(30)])


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("[" * 10_000, "nested more than 16 deep"),
        ("".join(f"{' ' * n}a:\n" for n in range(2000)), "nested more than 16 deep"),
        (BOMB, "line 2: *a0 repeats another part"),
        (f"a: {MANY}", "a value of 5000 characters"),
        ("a: 2020-13-45", "is not readable YAML: month must be in 1..12"),
        ("a: [1", "is not readable YAML"),
        ("a: \0", "is not readable YAML"),
        ("? [a]\n: 1", "is not readable YAML"),
        ("!!python/object:os.system a", "is not readable YAML"),
    ],
)
def test_yaml_that_is_none_or_stands_for_more_than_it_says_is_one_line(content, part, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(content)
    line = refusal(read_yaml, path)
    assert str(path) in line
    assert part in line


def test_yaml_that_cannot_be_read_is_one_line(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"a: \xff")
    for path in (tmp_path / "a.yaml", tmp_path, tmp_path / "nowhere.yaml"):
        assert str(path) in refusal(read_yaml, path)


@pytest.mark.parametrize(
    "fields",
    [
        {"method": 3},
        {"method": None},
        {"variant": 3},
        {"variant": ["paper"]},
        {"decode": False},
        {"model_type": 3},
        {"profile": 3},
        {"retention": "0.5"},
        {"retention": True},
        {"retention": math.nan},
        {"retention": 10**5000},
        {"max_new_tokens": True},
        {"max_new_tokens": 1.5},
        {"max_new_tokens": 10**5000},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_configuration_in_code_of_the_wrong_type_is_one_line(fields):
    (name,) = fields
    assert name.lower() in refusal(KVConfig, **{"method": "tgv_kv", "retention": 0.5} | fields).lower()


@pytest.mark.parametrize(
    "name", ["PRUNE_RATIO", "KV_RETENTION", "KV_CACHE_TYPE", "KV_VARIANT", "KV_DECODE", "MODEL_TYPE"]
)
@pytest.mark.parametrize("value", [MANY, "²", "nan", "inf", "-1", "a\nb", "\x1b[31m", "[0.1]", "x" * 10_000])
def test_every_odd_value_of_a_variable_is_one_short_line(name, value):
    budget = {} if name == "PRUNE_RATIO" else {"KV_RETENTION": "0.5"}
    refusal(KVConfig.from_env, {"KV_CACHE_TYPE": "tgv_kv"} | budget | {name: value})

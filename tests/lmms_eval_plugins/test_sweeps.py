"""Sweeps name every configuration once, the full cache first."""

import pytest

from kv_caches import ConfigError, KVConfig
from lmms_eval_plugins.sweeps import load_sweep, sweep_names


def test_the_paper_s_grid_has_29_configurations():
    configs = load_sweep("paper")
    assert len(configs) == len(set(configs)) == 29
    assert configs[0] == KVConfig()
    assert {config.retention for config in configs[1:]} == {0.5, 0.2, 0.1, 0.05}


@pytest.mark.parametrize("name", sweep_names())
def test_every_sweep_of_the_repository_loads(name):
    assert load_sweep(name)[0].method == "full"


def test_methods_and_budgets_of_the_command_line_replace_those_of_the_sweep():
    configs = load_sweep("paper", methods=["SnapKV", "tova"], retention=[0.3], base=KVConfig(max_new_tokens=8))
    assert [(c.method, c.retention) for c in configs] == [("full", 1.0), ("snapkv", 0.3), ("tova", 0.3)]
    assert {config.max_new_tokens for config in configs} == {8}


def write(folder, text):
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("methods: [full]", ["exactly the keys methods, retention"]),
        ("retention: [0.5]\nmethods: [{method: snapkv, varient: literal}]", ["'varient'", "Did you mean 'variant'?"]),
        ("retention: [0.5]\nmethods: [snapvk]", ["'snapvk' is not a method", "Did you mean 'snapkv'?"]),
        ("retention: [5]\nmethods: [snapkv]", ["retention 5"]),
        ("retention: [.nan]\nmethods: [snapkv]", ["retention nan"]),
        (f"retention: [{'9' * 400}]\nmethods: [snapkv]", ["retention 999"]),
        (f"retention: [0x{'f' * 5000}]\nmethods: [snapkv]", ["a value of 5002 characters"]),
        ("retention: [0.5]\nmethods: [{method: h2o, decode: no}]", ["decode of h2o must be text", "False: put it in"]),
        ("retention: [0.5]\nmethods: [{method: h2o, variant: 3}]", ["variant of h2o must be text", "as 3: put it in"]),
        ("retention: [0.5]\nmethods: [{method: h2o, profile: [a]}]", ["profile of h2o must be text"]),
        ("retention: [0.5]\nmethods: [{method: h2o, 3: a}]", ["3 in {'method': 'h2o', 3: 'a'} is not allowed"]),
        ("retention: [0.5]\n3: 4\nmethods: [h2o]", ["exactly the keys"]),
        ("&a retention: &b [0.5]\nmethods: *b", ["line 2: *b repeats another part"]),
        ("retention: [!!bool 'x']\nmethods: [h2o]", ["is not readable YAML"]),
        ("retention: [!!timestamp 'x']\nmethods: [h2o]", ["is not readable YAML"]),
        ("retention: [0.5]\nmethods: [h2o]\nretention: [0.1]", ["line 3: retention stands here twice; keep one"]),
        (
            "retention: [0.5]\nmethods:\n- {method: h2o, variant: paper, variant: x}",
            ["line 3: variant stands here twice"],
        ),
        ("retention: [0.5]\nmethods: [{method: h2o, retention: []}]", ["retention of h2o is empty: leave it out"]),
    ],
)
def test_a_wrong_sweep_is_one_clear_line(tmp_path, text, parts):
    with pytest.raises(ConfigError) as caught:
        load_sweep(write(tmp_path, text))
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_an_unknown_sweep_shows_the_nearest_one():
    with pytest.raises(ConfigError, match=r"KV_SWEEP='papper' .*Did you mean 'paper'\?"):
        load_sweep("papper")
    with pytest.raises(ConfigError, match="is neither a YAML file nor a sweep"):
        load_sweep("x" * 10_000 + ".yaml")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("retention: [0.5\nmethods: [full", "is not readable YAML"),
        ("retention: 0.1\nmethods: [tgv_kv]", "retention must be a list"),
        ("retention: [abc]\nmethods: [tgv_kv]", "abc must be a number"),
        ("retention: [true]\nmethods: [tgv_kv]", "True must be a number"),
        ("retention: []\nmethods: [tgv_kv]", "retention must be a list with something in it"),
        ("retention: [0.1]\nmethods:", "methods must be a list"),
        ("retention: [0.1]\nmethods: tgv_kv", "methods must be a list"),
        ("retention: [0.1]\nmethods: [{variant: official}]", "a mapping with the key method"),
        ("retention: [0.1]\nmethods: [3]", "3 in methods must be a name"),
        ("retention: [0.1]\nmethods: [{method: none, variant: paper}]", "the full cache has no variant"),
        ("retention: [0.05, 0.0500001]\nmethods: [tgv_kv]", "would both be written to a folder tgv_kv-0.95"),
    ],
)
def test_a_broken_sweep_file_is_one_clear_line(tmp_path, text, part):
    with pytest.raises(ConfigError) as caught:
        load_sweep(write(tmp_path, text))
    assert "\n" not in str(caught.value)
    assert part in str(caught.value)

"""One registry: lazy, spelling-tolerant, open to other packages, and printable."""

import importlib
import sys
import textwrap
from pathlib import Path

import pytest

from kv_caches import ConfigError, KVConfig, listing, registry
from kv_caches.__main__ import main

from .support import every_variant

EXPECTED = {
    *("full", "tgv_kv", "h2o", "snapkv", "streaming_llm", "elastic_cache", "prefix_kv", "pyramid_kv", "ada_kv"),
    *("mm_shiftkv", "random", "random_text_first", "random_vision_first", "tova", "keydiff", "knorm"),
    *("expected_attention", "ablation", "observed_attention", "look_m", "vl_cache", "cake", "mix_kv", "fastv"),
}


def test_every_method_is_registered():
    assert set(registry.method_names()) == EXPECTED


@pytest.mark.parametrize(("name", "variant"), every_variant())
def test_methods_say_who_they_are(name, variant):
    method = registry.build(name, variant)
    assert (method.name, method.variant) == (name, variant)
    assert method.paper


def test_methods_are_imported_when_asked_for(monkeypatch):
    prefix = "kv_caches.methods."
    for module in [name for name in sys.modules if name.startswith(prefix)]:
        monkeypatch.delitem(sys.modules, module)
    assert registry.canonical("tova") in registry.method_names()
    assert not [name for name in sys.modules if name.startswith(prefix)]
    assert registry.variants("tova") == ("paper",)
    assert [name for name in sys.modules if name.startswith(prefix)] == [prefix + "tova"]


def test_nearest_match():
    with pytest.raises(ConfigError, match="Did you mean 'snapkv'"):
        KVConfig(method="snap_vk", retention=0.5)
    with pytest.raises(ConfigError, match=r"KV_VARIANT='offical' is not a variant of elastic_cache.*'official'"):
        KVConfig(method="elastic_cache", retention=0.5, variant="offical")


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution with one method under a given entry point name."""

    def make(name, module="outside_method"):
        info = tmp_path / "outside-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[kv_caches.methods]\n{name} = {module}\n")
        (tmp_path / f"{module}.py").write_text(
            textwrap.dedent(
                f"""
                from kv_caches.budgets import Uniform
                from kv_caches.method import Method
                from kv_caches.retention import Protected
                from kv_caches.scorers import Recency

                VARIANTS = ("paper",)

                def build(variant):
                    return Method({name!r}, "Nobody, 2026", Uniform(), Recency(), Protected(), variant)
                """
            )
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, module, raising=False)
        registry._plugins.cache_clear()

    yield make
    registry._plugins.cache_clear()


def test_another_package_adds_a_method(install):
    install("newest_only")
    assert "newest_only" in registry.method_names()
    config = KVConfig(method="Newest-Only", retention=0.5)
    assert (config.method, config.variant) == ("newest_only", "paper")
    assert any(row["name"] == "newest_only" for row in listing.rows())


@pytest.mark.parametrize("name", ["H2O", "none", "tgv-kv"])
def test_a_name_that_is_taken_is_an_error(install, name):
    install(name)
    with pytest.raises(ConfigError, match="is already registered"):
        registry.method_names()


def test_list_is_an_aligned_table(capsys):
    assert main(["list"]) == 0
    head, rule, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(EXPECTED)
    starts = [i for i in range(len(rule)) if rule[i] == "-" and (i == 0 or rule[i - 1] == " ")]
    assert [head[i:].split("  ")[0].strip() for i in starts] == list(listing.COLUMNS)
    for line in lines:
        assert all(line[i - 1] == " " and line[i] != " " for i in starts[1:] if i < len(line))
    row = next(line for line in lines if line.startswith("elastic_cache "))
    assert "paper, official" in row
    assert "column sums" in row
    assert "fixed slot" in row
    rule_of_tgv = next(line for line in lines if line.startswith("tgv_kv "))
    assert "least attended (official, official_bf16)" in rule_of_tgv


def test_list_as_markdown(capsys):
    assert main(["list", "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(EXPECTED) + 2
    assert {line.count("|") for line in lines} == {len(listing.README_COLUMNS) + 1}
    assert any("| kv_caches/methods/elastic_cache.py |" in line for line in lines)


def test_help_explains_the_environment(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert "PRUNE_RATIO" in out
    assert "list" in out


def test_entry_points_of_the_package_name_modules_that_exist():
    project = (Path(registry.__file__).parents[1] / "pyproject.toml").read_text()
    for line in project.splitlines():
        if "kv_caches.methods." in line and "=" in line:
            name, value = (part.strip().strip('"') for part in line.split("="))
            assert registry._BUILT_IN[name] == value

"""Which edits of code throw stored answers away: those that can change them, and no others."""

import importlib
import sys
import textwrap
from pathlib import Path

import pytest

from kv_caches import KVConfig, registry, source
from kv_caches.methods import ablation

CACHES = (source._is_followed, source._file, source._tree, source._content, source._imports, registry.source_digest)


def forget():
    for cached in CACHES:
        cached.cache_clear()


@pytest.fixture
def edited(tmp_path, monkeypatch):
    """Lets a module's source be another file, with a text replaced."""
    stock = source._file
    places = {}

    def file(name):
        return places.get(name) or stock(name)

    file.cache_clear = stock.cache_clear
    monkeypatch.setattr(source, "_file", file)

    def edit(module, old, new):
        code = stock(module).read_text()
        assert old in code
        places[module] = tmp_path / f"moved_{len(places)}.py"
        places[module].write_text(code.replace(old, new))
        forget()

    forget()
    yield edit
    forget()


def digests(*names):
    return [registry.source_digest(name) for name in names]


def test_a_method_s_code_decides_wherever_it_is_used(edited):
    before = digests("tgv_kv", "ablation", "snapkv", "full")
    edited("kv_caches.methods.tgv_kv", "class TextWeightedRanking", "SIGN = -1\n\n\nclass TextWeightedRanking")
    after = digests("tgv_kv", "ablation", "snapkv", "full")
    assert [a != b for a, b in zip(before, after)] == [True, True, False, False]


def test_the_engine_decides_for_all(edited):
    before = digests(*registry.method_names())
    edited("kv_caches.rows", "from torch import Tensor\n", "from torch import Tensor\n\nSPARE = 1\n")
    assert not set(before) & set(digests(*registry.method_names()))


def test_place_comments_and_docstrings_decide_nothing(edited):
    before = digests("tgv_kv", "ablation")
    code = source._file("kv_caches.methods.tgv_kv").read_text()
    edited("kv_caches.methods.tgv_kv", code, "# A remark.\n" + code.replace('"""\n', 'Said better.\n"""\n', 1))
    edited("kv_caches.statistics", "class PrefillStats", "# A remark.\n\n\nclass PrefillStats")
    assert digests("tgv_kv", "ablation") == before


def test_the_same_name_from_another_module_is_other_code(edited):
    before = digests("streaming_llm")
    module = "kv_caches.methods.streaming_llm"
    edited(module, "from ..budgets import Uniform", "from ..retention import Protected as Uniform")
    assert digests("streaming_llm") != before


def test_a_file_that_a_method_reads_decides(edited, monkeypatch, tmp_path):
    before = digests("ablation", "tgv_kv")
    (tmp_path / "table.yaml").write_text(Path(ablation.FILE).read_text() + "\n")
    monkeypatch.setattr(ablation, "READS", (tmp_path / "table.yaml",))
    forget()
    after = digests("ablation", "tgv_kv")
    assert [a != b for a, b in zip(before, after)] == [True, False]


def test_every_file_that_a_method_reads_is_named():
    for name in registry.method_names():
        module = importlib.import_module(registry.module_name(name))
        files = [value for key, value in vars(module).items() if isinstance(value, Path) and key.isupper()]
        assert set(files) <= set(getattr(module, "READS", ())), name


@pytest.fixture
def own_package(tmp_path, monkeypatch):
    """A method of another package, with helper modules in it and beside it."""
    package = tmp_path / "somebodys"
    package.mkdir()
    files = {
        "__init__.py": "",
        "weights.py": "FACTOR = 1\n",
        "newest.py": """
            import yaml
            from kv_caches.budgets import Uniform
            from kv_caches.method import Method
            from kv_caches.retention import Protected
            from kv_caches.scorers import Recency

            from .weights import FACTOR

            VARIANTS = ("paper",)

            def build(variant):
                import beside
                return Method("newest", "Nobody, 2026", Uniform(), Recency(), Protected(), variant)
        """,
    }
    for name, code in files.items():
        (package / name).write_text(textwrap.dedent(code))
    (tmp_path / "beside.py").write_text("MORE = 1\n")
    point = registry.EntryPoint(name="newest", value="somebodys.newest", group=registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    registry._plugins.cache_clear()
    forget()
    yield tmp_path
    for name in ("somebodys", "somebodys.newest", "somebodys.weights", "beside"):
        sys.modules.pop(name, None)
    registry._plugins.cache_clear()
    forget()


@pytest.mark.parametrize("name", ["somebodys/newest.py", "somebodys/weights.py", "beside.py"])
def test_a_package_of_one_s_own_counts_with_its_helper_modules(own_package, name):
    def fingerprint():
        forget()
        return KVConfig("newest", 0.5).fingerprint()

    path, before = own_package / name, fingerprint()
    path.write_text(path.read_text() + "\n# a remark\n")
    assert fingerprint() == before
    path.write_text(path.read_text() + "\nOTHER = 2\n")
    assert fingerprint() != before


def test_installed_packages_that_it_imports_count_with_their_version(own_package, monkeypatch):
    before = registry.source_digest("newest")
    monkeypatch.setattr(source.importlib.metadata, "version", lambda name: "99")
    source._version.cache_clear()
    forget()
    assert registry.source_digest("newest") != before
    source._version.cache_clear()

"""lmms-eval's task files read with libyaml: the same content, the same functions, the same messages."""

from pathlib import Path

import lmms_eval
import pytest
import yaml
from lmms_eval import utils

from lmms_eval_plugins import scanning
from lmms_eval_plugins.needs import TASKS_DIR

STOCK = sorted(Path(lmms_eval.__file__).parent.glob("tasks/**/*.yaml"))
FILES = [*STOCK[::20], *TASKS_DIR.glob("**/*.yaml")]


@pytest.fixture
def with_libyaml(monkeypatch):
    monkeypatch.setattr(utils, "yaml", utils.yaml)
    scanning.read_tasks_with_libyaml()


@pytest.mark.parametrize("mode", ["simple", "full"])
def test_a_task_file_is_read_as_ever(mode, monkeypatch, with_libyaml):
    files = FILES if mode == "simple" else [path for path in FILES if TASKS_DIR in path.parents]
    assert len(files) > 8
    found = [utils.load_yaml_config(str(path), mode=mode) for path in files]
    assert utils.yaml.full_load is scanning.full_load
    monkeypatch.setattr(utils, "yaml", yaml)
    expected = [utils.load_yaml_config(str(path), mode=mode) for path in files]
    assert str(found).count("<function") == str(expected).count("<function")
    assert (str(found).count("<function") > 0) == (mode == "full")
    assert [_named(config) for config in found] == [_named(config) for config in expected]


def _named(value):
    """A configuration with functions as their names, whether looked up or not: every reading makes them anew."""
    if isinstance(value, yaml.Node):
        return value.tag, value.value
    if isinstance(value, dict):
        return {key: _named(inner) for key, inner in value.items()}
    return [_named(inner) for inner in value] if isinstance(value, list) else getattr(value, "__qualname__", value)


def test_a_file_that_is_no_yaml_has_the_usual_message(tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text("task: [\n  a: b: c\n")
    messages = []
    for read in (scanning.full_load, yaml.full_load):
        with path.open("rb") as file, pytest.raises(yaml.YAMLError) as raised:
            read(file)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]

"""lmms-eval's start: its thousands of task files, read with libyaml, which takes an eighth of the time.

What is read is the same: the C parser hands its events to the constructors of the loader that lmms-eval uses.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import yaml


def read_tasks_with_libyaml() -> None:
    """Hands lmms-eval another `yaml.full_load` in this process; nothing changes where PyYAML lacks libyaml."""
    from lmms_eval import utils

    if yaml.__with_libyaml__:
        utils.yaml = SimpleNamespace(**vars(yaml) | {"full_load": full_load})


def full_load(stream: Any) -> Any:
    """What `yaml.full_load` makes of an open file; what libyaml does not take is left to it, with its message."""

    class Loader(yaml.cyaml.CParser, yaml.constructor.FullConstructor, yaml.resolver.Resolver):
        yaml_constructors = yaml.FullLoader.yaml_constructors  # as they are now: lmms-eval adds `!function`

        def __init__(self) -> None:
            yaml.cyaml.CParser.__init__(self, stream)
            yaml.constructor.FullConstructor.__init__(self)
            yaml.resolver.Resolver.__init__(self)
            self.name = stream.name  # lmms-eval looks for functions beside the file

    try:
        return Loader().get_single_data()
    except yaml.YAMLError:
        stream.seek(0)
        return yaml.full_load(stream)

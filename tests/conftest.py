"""All tests: no hub, one thread per process, so that several do not fight for the cores, and the slowest files first.

Of two processes that take file by file, the one that takes a file of a minute last leaves the other without work.
"""

import os
import signal

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

torch.set_num_threads(1)
# A shell that starts the tests in the background has Ctrl-C ignored, for all that the tests start too.
signal.signal(signal.SIGINT, signal.default_int_handler)

SLOWEST = (
    "test_scripts.py",
    "test_wheel.py",
    "test_readme.py",
    "test_data_page.py",
    "test_equality.py",
    "test_command_line.py",
    "test_sweep_command.py",
    "test_speed.py",
    "test_command.py",
    "test_script_arguments.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """pytest-xdist would start with the files of most tests, which are quick."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of `SLOWEST` in this order, then all others in theirs."""
    place = {name: number for number, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))

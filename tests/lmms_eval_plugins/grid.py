"""A sweep through one wrapper, without lmms-eval's start-up."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tiny_vlm.data import make_samples

from . import toy

SWEEP = """
retention: [0.5, 0.1]
methods: [full, tgv_kv, snapkv, ada_kv, {method: h2o, decode: evict, retention: 0.3}]
"""
CONFIGURATIONS = 8
ENVIRONMENT = {"KV_CACHE_TYPE": "tgv_kv", "PRUNE_RATIO": "0.9"}


def captions(samples: int) -> list[dict[str, Any]]:
    """Documents of the embedded task with the longest answers."""
    drawn = make_samples("caption", "test", samples)
    return [{"text": sample.question, "images": [sample.image]} for sample in drawn]


def wrapper(checkpoint: Path, store: Path, batch: int = 2) -> Any:
    """A wrapper whose records go below `store`; the rest is as the environment says."""
    return toy.wrapper(checkpoint, store=store, batch_size=batch)


def ask(model: Any, docs: list[dict[str, Any]], tokens: int = 8, **gen_kwargs: Any) -> list[str]:
    """The answers of the configuration in force; the run is over afterwards."""
    kwargs = {"max_new_tokens": tokens, "temperature": 0, "do_sample": False, **gen_kwargs}
    answers = toy.ask(model, toy.ToyTask(docs), kwargs)
    for run in model._runs.values():
        run.store.close()
    return answers


def forked(action: Callable[[], Any]) -> int:
    """Runs something in a process group of its own; returns its id, which is also that of the process."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()
        torch.set_num_threads(1)  # threads do not survive a fork
        action()
        status = 0
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)

"""Checks and defaults of a run that was started by lmms-eval's command line, before anything slow happens.

lmms-eval has no hook for a plugin's tasks, keys its response cache by `--model_args` and not by the environment, and
exits with status 0 after an error. All three are settled here, through the command line and loguru's `patcher`.
"""

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Any

import torch
from loguru import logger

from kv_caches import ConfigError, UnsupportedError
from kv_caches.errors import nearest
from kv_caches.values import read_yaml
from lmms_eval_plugins import arguments, checks, files, settings
from lmms_eval_plugins.asked import is_lmms_eval
from lmms_eval_plugins.errors import RunStopped, in_one_line, keep_status, stop_on_config_error
from lmms_eval_plugins.families import FAMILIES
from lmms_eval_plugins.needs import TASKS_DIR, task_names
from lmms_eval_plugins.redaction import redact_output
from lmms_eval_plugins.signals import stop_on_signals

_NOT_FOUND = re.compile(r"Tasks were not found: (.*)")


def prepare_command_line() -> None:
    """Checks the run and completes `sys.argv`; does nothing unless lmms-eval's command line is running.

    Raises:
        RunStopped: one line says what cannot be as asked.
    """
    if not is_lmms_eval(sys.argv[0]):
        return
    files.print_everything()
    args = parse(sys.argv[1:])
    redact_output()
    if args.config or args.model in FAMILIES:
        stop_on_signals()
        keep_status()
    logger.configure(patcher=stop_on_error_message)
    _offer_tasks(args)
    if not torch.cuda.is_available():
        # Before lmms-eval makes its Accelerator: several processes on CPU need gloo.
        os.environ["ACCELERATE_USE_CPU"] = "true"
    if args.config:
        with stop_on_config_error():
            _refuse_shared_cache(args)
    elif args.model in FAMILIES:
        _check_run(args)
    elif args.model is not None:
        _refuse_eviction_elsewhere(args.model)


def _refuse_eviction_elsewhere(model: str) -> None:
    asked = [name for name in ("KV_CACHE_TYPE", "PRUNE_RATIO", "KV_RETENTION", "KV_SWEEP") if name in os.environ]
    if asked:
        raise RunStopped(
            f"{asked[0]} is set, but --model {model} is not served by this project and would keep its full cache; "
            f"use {', '.join(FAMILIES)}, or unset it.{nearest(model, FAMILIES)}"
        )


def _check_run(args: argparse.Namespace) -> None:
    run, found = None, []
    try:
        run = settings.resolve(FAMILIES[args.model], "simple" if args.force_simple else "chat", model_args(args))
    except (ConfigError, UnsupportedError) as error:
        found.append(str(error))
    checks.stop_on([*found, *checks.problems(args, run)])
    assert run is not None
    checks.print_notices(run)
    if run.device == "cpu":
        os.environ["ACCELERATE_USE_CPU"] = "true"
    if "kv_fingerprint" not in model_args(args):
        _set_argument("--model_args", ",".join(filter(None, [args.model_args, f"kv_fingerprint={run.fingerprint}"])))


def _refuse_shared_cache(args: argparse.Namespace) -> None:
    """A configuration file can set the environment of each run, so fingerprints cannot be added beforehand."""
    path = Path(args.config)
    runs = read_yaml(path, aliases=True) if path.is_file() else []
    for run in runs if isinstance(runs, list) else [runs]:
        if not isinstance(run, dict):
            raise ConfigError(
                f"--config {path}: {run!r:.60} is no run; a mapping of arguments, or a list of them, is needed"
            )
        cache = args.use_cache or run.get("use_cache")
        if cache and run.get("model") in FAMILIES and "kv_fingerprint" not in str(run.get("model_args")):
            raise RunStopped(
                f"--config {path} with use_cache={cache}: lmms-eval's response cache does not see the environment and "
                "would mix the answers of different methods; leave use_cache out, or give the run by arguments"
            )


def parse(argv: list[str]) -> argparse.Namespace:
    """What of lmms-eval's arguments matters here."""
    parser = argparse.ArgumentParser(add_help=False)
    for name in ("--model", "--model_args", "--tasks", "--include_path", "--device", "--config", "--use_cache"):
        parser.add_argument(name)
    for name in ("--limit", "--offset", "--gen_kwargs", "--max_batch_size"):
        parser.add_argument(name)
    parser.add_argument("--batch_size", "-b")
    for name in ("--force_simple", "--predict_only"):
        parser.add_argument(name, action="store_true")
    return parser.parse_known_args(argv)[0]


def model_args(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of the model as lmms-eval will give them to its wrapper."""
    extra = {name: getattr(args, name) for name in ("device", "batch_size", "max_batch_size")}
    return arguments.pairs("--model_args", args.model_args) | {k: v for k, v in extra.items() if v is not None}


def _set_argument(name: str, value: str) -> None:
    """The last occurrence counts; a value of its own argument may start with anything."""
    sys.argv.append(f"{name}={value}")


def _offer_tasks(args: argparse.Namespace) -> None:
    if args.include_path is None and (args.tasks or args.config):
        _set_argument("--include_path", str(TASKS_DIR))
    elif args.include_path is not None:
        offer_beside_others()


def offer_beside_others() -> None:
    """lmms-eval takes one `--include_path`; our tasks are there beside those of a folder of one's own."""
    from lmms_eval.tasks import TaskManager

    stock = TaskManager.initialize_tasks
    if getattr(stock, "with_ours", False):
        return

    def initialize_tasks(self: Any, include_path: Any = None, include_defaults: bool = True) -> Any:
        own = [include_path] if isinstance(include_path, str) else list(include_path or [])
        return stock(self, [*own, str(TASKS_DIR)], include_defaults)

    initialize_tasks.with_ours = True  # type: ignore[attr-defined]
    TaskManager.initialize_tasks = initialize_tasks


def stop_on_error_message(record: Any) -> None:
    """Called by loguru for every message; lmms-eval logs these and then exits with status 0."""
    if not str(record["name"]).startswith("lmms_eval."):
        return
    message = record["message"]
    if found := _NOT_FOUND.match(message):
        missing = found.group(1).split(", ")
        hints = "".join(dict.fromkeys(nearest(name, task_names()) for name in missing))
        raise RunStopped(f"--tasks: there is no task {', '.join(missing)}.{hints} (all: lmms-eval --tasks list)")
    if message.startswith("Error during evaluation"):
        error = sys.exc_info()[1]  # lmms-eval has printed its traceback
        reason = in_one_line(error) if error else message.removeprefix("Error during evaluation: ").splitlines()[0]
        raise RunStopped(f"the run did not finish: {reason}", process=True)

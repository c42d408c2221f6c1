"""Score a whole sweep in one process: one prefill per sample, lmms-eval started once, weights loaded at most once.

All arguments that are not listed below are lmms-eval's own (--model, --model_args, --tasks, --batch_size, --limit,
--output_path, --force_simple, ...). Works under `accelerate launch -m` and `torchrun -m` too. For each configuration,
<output_path>/<label>/ gets lmms-eval's own results and a result.<task>.json per task, or failed.json if samples failed.
Answers are kept below KV_RECORDS_DIR: what is there is not computed again.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_CANNOT_RUN_YET = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    from lmms_eval_plugins.redaction import redacted_output
    from lmms_eval_plugins.signals import stopping_on_signals

    with redacted_output(), stopping_on_signals():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    options, rest = _parser().parse_known_args(argv)
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # bars of others; this must be set before tqdm is imported
    from kv_caches import ConfigError, UnsupportedError
    from lmms_eval_plugins import checks, files, planning, preflight

    files.print_everything()
    known, found = preflight.parse(rest), []
    configs: list[Any] = []
    runs: list[Any] = []
    try:
        configs = planning.configurations(known, options.sweep, options.methods, options.retention)
        runs = planning.resolved(known, configs)
    except planning.CheckpointNotThere as error:
        found.append(str(error))
    except (ConfigError, UnsupportedError) as error:
        configs = []
        found.append(str(error))
    found += checks.problems(known, runs[0] if runs else None)
    if configs and options.dry_run:
        planning.show(known, configs, runs)
        return _say_what_is_missing(found)
    checks.stop_on(found)
    checks.print_notices(runs[0])
    return _Sweep(rest, runs).run()


def _say_what_is_missing(found: list[str]) -> int:
    """What stands between a plan and its run, then what to do; returns the status of the process."""
    for problem in found:
        print(f"cannot run yet: {problem}", flush=True)
    if found:
        print('error: settle what "cannot run yet" names, then run the same again without --dry-run', file=sys.stderr)
    return _CANNOT_RUN_YET if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lmms_eval_plugins.sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--sweep", help="name in configs/sweeps, or a YAML file (default: KV_SWEEP, or paper)")
    parser.add_argument("--methods", default="", help="only these methods, separated by commas; full is always there")
    parser.add_argument("--retention", default="", help="budgets instead of the sweep's: shares kept, by commas")
    planning = "print every planned run and what is there; run nothing; status 3 if it cannot run yet"
    parser.add_argument("--dry-run", action="store_true", help=planning)
    return parser


@dataclass
class _Sweep:
    """What is to be scored, in order: the full cache first."""

    arguments: list[str]
    runs: list[Any]  # RunSettings
    full: dict[str, Any] = field(default_factory=dict)
    processes: int = 1

    def run(self) -> int:
        """Scores every configuration; status 1 if one of them has no score."""
        import lmms_eval.__main__ as cli

        from lmms_eval_plugins import manifest, preflight, session
        from lmms_eval_plugins.errors import SamplesFailed
        from lmms_eval_plugins.sweeps import label

        manifest.register()
        accelerator, args = _start(cli, self.arguments, preflight, self.runs[0].device)
        self.processes, broken, started = accelerator.num_processes, [], time.monotonic()
        with session.started([run.kv for run in self.runs]) as shared, _once(cli):
            for number, run in enumerate(self.runs, start=1):
                since = time.monotonic()
                try:
                    line = self._score(cli, args, run)
                except SamplesFailed as failed:
                    broken.append(label(run.kv))
                    line = failed.message
                    if accelerator.is_main_process:
                        self._write_failed(Path(args.output_path) / label(run.kv), run)
                accelerator.wait_for_everyone()
                if accelerator.is_main_process:
                    seconds = time.monotonic() - since
                    print(f"[kv] {number}/{len(self.runs)} {label(run.kv)} in {seconds:.1f} s: {line}", flush=True)
        if accelerator.is_main_process:
            print(f"[kv] {len(self.runs)} configurations in {time.monotonic() - started:.0f} s: {args.output_path}")
            if broken:
                print(f"error: no score of {', '.join(broken)}: samples failed", file=sys.stderr)
        accelerator.end_training()  # processes that part in order cannot bring each other down at their exit
        return 1 if broken or shared.records_missing else 0

    def _score(self, cli: Any, args: argparse.Namespace, run: Any) -> str:
        from lmms_eval_plugins.errors import RunStopped, in_one_line
        from lmms_eval_plugins.sweeps import environment, label

        mine = copy.copy(args)
        folder = Path(args.output_path) / label(run.kv)
        mine.output_path = str(folder)
        mine.model_args = ",".join(filter(None, [args.model_args, f"kv_fingerprint={run.fingerprint}"]))
        try:
            with _environment(environment(run.kv)):
                results, samples = cli.cli_evaluate_single(mine)
        except Exception as error:
            if args.verbosity == "DEBUG":
                raise
            traceback.print_exc(file=sys.stdout)  # for the log
            raise RunStopped(f"the run did not finish: {in_one_line(error)}", process=True) from error
        return "" if results is None else self._write(folder, run, results, samples)

    def _write_failed(self, folder: Path, run: Any) -> None:
        """Beside where its results would be, so that tables say what became of the configuration."""
        from lmms_eval_plugins import records, results
        from lmms_eval_plugins.journal import stop_if_not_written
        from lmms_eval_plugins.sweeps import label

        with stop_if_not_written(folder):
            records.write_json(folder / "failed.json", results.failed_run(run, label(run.kv), self.processes))

    def _write(self, folder: Path, run: Any, results: Any, samples: Any) -> str:
        from lmms_eval_plugins import outputs, records
        from lmms_eval_plugins import results as files
        from lmms_eval_plugins.journal import stop_if_not_written
        from lmms_eval_plugins.sweeps import label

        if run.kv.method == "full":
            self.full = samples
        lines = []
        for task, mine in samples.items():
            content = files.task_result(run, label(run.kv), self.processes, results, task)
            content = files.scored(content, mine, self.full.get(task))
            content["records"] = outputs.relative(records.base_dir() / run.fingerprint, folder)
            with stop_if_not_written(folder):
                records.write_json(records.result_file(folder, task), content)
            lines.append(f"{task} {_in_words(content)}")
        (folder / "failed.json").unlink(missing_ok=True)
        return "; ".join(lines)


def _start(cli: Any, arguments: list[str], preflight: Any, device: str) -> tuple[Any, argparse.Namespace]:
    """What lmms-eval's own command line does before its first run."""
    import datetime

    from accelerate import Accelerator, InitProcessGroupKwargs
    from loguru import logger

    if device == "cpu":
        os.environ["ACCELERATE_USE_CPU"] = "true"  # several processes on CPU need gloo
    logger.configure(patcher=preflight.stop_on_error_message)
    sys.argv = ["sweep", *arguments]
    _, args = cli.parse_eval_args()
    if "--verbosity" not in " ".join(arguments):
        args.verbosity = "ERROR"
    logger.remove()
    logger.add(sys.stdout, level=args.verbosity)
    os.environ["VERBOSITY"] = args.verbosity
    args.log_samples, args.output_path = True, args.output_path or "results/runs/sweep"
    preflight.offer_beside_others()
    patience = InitProcessGroupKwargs(timeout=datetime.timedelta(days=1))
    return Accelerator(kwargs_handlers=[patience]), args


@contextmanager
def _once(cli: Any) -> Iterator[None]:
    """lmms-eval scans its thousands of task files for every run, here once; bars only on a terminal."""
    make, made = cli.TaskManager, []
    bar = cli.evaluator.tqdm

    def first(*args: Any, **kwargs: Any) -> Any:
        if not made:
            made.append(make(*args, **kwargs))
        return made[0]

    cli.TaskManager = first
    if not sys.stderr.isatty():
        cli.evaluator.tqdm = lambda *args, **kwargs: bar(*args, **kwargs | {"disable": True})
    try:
        yield
    finally:
        cli.TaskManager, cli.evaluator.tqdm = make, bar


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)


def _in_words(content: dict[str, Any]) -> str:
    shown = []
    for key, value in content["metrics"].items():
        if "," not in key or "_stderr" in key or not isinstance(value, int | float):
            continue
        name, against = key.split(",")[0], content["difference_to_full"]
        text = f"{name} {value:.4g}"
        if content["label"] != "full" and isinstance(against, dict) and name in against:
            text += " ({mean:+.3g} to full, 95 % {low:+.3g} to {high:+.3g})".format(**against[name])
        shown.append(text)
    return ", ".join([*shown, *_judging(content)])


def _judging(content: dict[str, Any]) -> list[str]:
    if "judge" not in content:
        return []
    judged, unjudged = (content["counts"][name] for name in ("judged", "unjudged"))
    offline = " offline (not comparable to a judge model)" if content["judge"]["kind"] == "exact" else ""
    return [f"{judged} of {judged + unjudged} judged{offline}"]


if __name__ == "__main__":
    sys.exit(main())

"""Judge the open answers of a results folder, and write its scores anew; no model is loaded.

Only answers without a verdict are asked for, so a run that was interrupted goes on where it stopped. KV_JUDGE=exact
applies the offline rule instead and sends nothing. The judge model is GPT_EVAL_MODEL_NAME at OPENAI_API_URL, with
OPENAI_API_KEY (a server of your own needs no key).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from lmms_eval_plugins.signals import VERDICTS, Stopped, stop_on_signals, stopping_on_signals

if __name__ == "__main__":
    stop_on_signals(VERDICTS)  # from here on: what follows takes seconds to import

from kv_caches import ConfigError
from lmms_eval_plugins.errors import RunStopped, stop_on_config_error
from lmms_eval_plugins.judge import rescore, runs, scoring
from lmms_eval_plugins.judge.asking import ask_missing
from lmms_eval_plugins.judge.runs import Found
from lmms_eval_plugins.judge.settings import JudgeSettings
from lmms_eval_plugins.redaction import redacted_output


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; status 0 if every answer is judged."""
    with (
        redacted_output(),
        stopping_on_signals(VERDICTS),
    ):
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    options = _parser().parse_args(argv)
    with stop_on_config_error():
        judge = JudgeSettings.from_env()
        found = runs.find(options.folder)
        _check(options.folder, bool(found), judge)
    if (options.folder / "records").is_dir():
        os.environ.setdefault("KV_RECORDS_DIR", str(options.folder / "records"))
    status = 0
    try:
        if judge.kind == "api":
            ask_missing((entry for one in found for entry in one.entries), judge, options.yes)
    except (RunStopped, Stopped) as stopped:
        status = int(str(stopped.code))
    rescore.judge(found, judge)
    return status or _report(found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lmms_eval_plugins.judge",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("folder", type=Path, help="results folder of a sweep or script, or of one run")
    parser.add_argument("--yes", action="store_true", help="send the requests without asking")
    return parser


def _check(folder: Path, found: bool, judge: JudgeSettings) -> None:
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder")
    if not found:
        raise ConfigError(f"{folder}: no run in it has open answers to judge; give the --output_path of a run")
    if judge.kind == "none":
        raise ConfigError("KV_JUDGE=none: nothing is judged; unset it for a judge model, or use exact")
    if judge.missing:
        raise ConfigError(
            f"{' and '.join(judge.missing)} must be set to judge with a model; KV_JUDGE=exact judges offline (not "
            "comparable to the paper)"
        )


def _report(found: list[Found]) -> int:
    """One line per task and run."""
    unjudged = total = 0
    for one in found:
        counts, score = scoring.counts(one.entries), scoring.aggregate(one.entries)
        unjudged, total = unjudged + counts["unjudged"], total + len(one.entries)
        shown = "no score" if score is None else f"{score:.4g} %"
        print(
            f"[kv] {one.folder.name} {one.task}: {shown}, {counts['judged']} of {len(one.entries)} judged", flush=True
        )
    if unjudged:
        print(
            f"error: {unjudged} of {total} answers are unjudged; run again, and they alone are asked", file=sys.stderr
        )
    return int(unjudged > 0)


if __name__ == "__main__":
    sys.exit(main())

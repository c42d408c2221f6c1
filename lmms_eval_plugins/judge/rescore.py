"""Finished runs of a results folder: the open answers in them, and their scores written anew."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmms_eval_plugins import records, results
from lmms_eval_plugins.journal import stop_if_not_written
from lmms_eval_plugins.judge import scoring
from lmms_eval_plugins.judge.settings import JudgeSettings

Samples = list[dict[str, Any]]
_SCORES, _SAMPLES = "_results.json", "_samples_"


@dataclass
class Judged:
    """One task of one run.

    Attributes:
        folder: of the run. scores: the file with lmms-eval's own results. samples: those beside it.
    """

    folder: Path
    task: str
    scores: Path
    samples: Samples

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [sample[scoring.METRIC] for sample in self.samples]

    @property
    def result(self) -> Path:
        """The sweep's file; a run that was started alone has none."""
        return self.folder / f"result.{self.task}.json"

    def judge(self, judge: JudgeSettings) -> None:
        """Takes over the verdicts that are there now."""
        for sample in self.samples:
            sample[scoring.METRIC] = scoring.judged(sample[scoring.METRIC], judge)

    def write(self, full: Samples | None) -> None:
        """Scores, counts and comparison into the files of the run."""
        for path in (self.scores, self.result):
            if not path.is_file():
                continue
            content = json.loads(path.read_text(encoding="utf-8"))
            if path == self.result:
                content = results.scored(content, self.samples, full)
            else:
                alone = results.scored({"metrics": content["results"][self.task], "counts": {}}, self.samples, None)
                content["results"][self.task] = alone["metrics"]
                content.setdefault("judge", {})[self.task] = alone["judge"] | alone["counts"]
            with stop_if_not_written(path):
                records.write_json(path, content)


def find(folder: Path) -> list[Judged]:
    """Tasks with open answers below a folder of runs, or in the folder of one."""
    runs = [path for path in sorted(folder.glob("*")) if path.is_dir() and path.name != "records"]
    nested = [path for path in runs if any(path.glob(f"*/*{_SCORES}"))]
    return [judged for run in nested or [folder] for judged in _of_run(run)]


def _of_run(run: Path) -> list[Judged]:
    """The newest answers of each task that lmms-eval wrote there."""
    newest: dict[str, Judged] = {}
    for path in sorted(run.rglob(f"*{_SAMPLES}*.jsonl"), key=lambda path: (path.stat().st_mtime, path.name)):
        date, _, task = path.stem.partition(_SAMPLES)
        with path.open(encoding="utf-8") as file:
            samples = [json.loads(line) for line in file]
        if samples and all(isinstance(sample.get(scoring.METRIC), dict) for sample in samples):
            newest[task] = Judged(run, task, path.with_name(date + _SCORES), samples)
    return list(newest.values())


def write(found: list[Judged]) -> None:
    """All of them, each compared with the full cache if its scores are there."""
    full = {judged.task: judged.samples for judged in found if _is_full(judged)}
    for judged in found:
        judged.write(full.get(judged.task))


def _is_full(judged: Judged) -> bool:
    if not judged.result.is_file():
        return False
    return json.loads(judged.result.read_text(encoding="utf-8"))["config"]["method"] == "full"

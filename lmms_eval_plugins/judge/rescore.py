"""Finished runs of a results folder: the open answers in them, and their scores written anew."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kv_caches import ConfigError
from lmms_eval_plugins import records, results
from lmms_eval_plugins.journal import stop_if_not_written
from lmms_eval_plugins.judge import scoring
from lmms_eval_plugins.judge.settings import JudgeSettings

Samples = list[dict[str, Any]]
_SCORES, _SAMPLES = "_results.json", "_samples_"
_TEXTS = ("question", "answer", "prediction")


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
            content = _content(path, self.task)
            if path == self.result:
                content = results.scored(content, self.samples, full)
            else:
                alone = results.scored({"metrics": content["results"][self.task], "counts": {}}, self.samples, None)
                content["results"][self.task] = alone["metrics"]
                content.setdefault("judge", {})[self.task] = alone["judge"] | alone["counts"]
            with stop_if_not_written(path):
                records.write_json(path, content)


def find(folder: Path) -> list[Judged]:
    """Tasks with open answers below a folder of runs, or in the folder of one.

    Raises:
        ConfigError: a file of theirs is damaged or of another kind, so that its scores could not be written.
    """
    runs = [path for path in sorted(folder.glob("*")) if path.is_dir() and path.name != "records"]
    nested = [path for path in runs if any(path.glob(f"*/*{_SCORES}"))]
    return [judged for run in nested or [folder] for judged in _of_run(run)]


def _of_run(run: Path) -> list[Judged]:
    """The newest answers of each task that lmms-eval wrote there."""
    newest: dict[str, tuple[str, Path]] = {}
    for path in sorted(run.rglob(f"*{_SAMPLES}*.jsonl"), key=lambda path: (path.stat().st_mtime, path.name)):
        date, _, task = path.stem.partition(_SAMPLES)
        newest[task] = date, path
    found = []
    for task, (date, path) in newest.items():
        samples = _samples(path)
        judged = Judged(run, task, path.with_name(date + _SCORES), samples)
        there = [file for file in (judged.scores, judged.result) if file.is_file()]
        if there and samples and all(isinstance(sample.get(scoring.METRIC), dict) for sample in samples):
            _check_entries(path, judged.entries)
            [_content(file, task) for file in there]
            found.append(judged)
    return found


def _samples(path: Path) -> Samples:
    samples = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                samples.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{path}:{number} is not a line of JSON ({error}); run it again") from error
            if not isinstance(samples[-1], dict) or "doc_id" not in samples[-1]:
                raise ConfigError(f"{path}:{number}: {str(samples[-1])[:60]!r} is no sample; run it again")
    return samples


def _check_entries(path: Path, entries: Samples) -> None:
    for number, entry in enumerate(entries, 1):
        for name in _TEXTS:
            if not isinstance(entry.get(name), str):
                raise ConfigError(f"{path}:{number}: {name} must be text, not {entry.get(name)!r:.60}; run it again")
        answers = entry.get("answers") or []
        if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
            raise ConfigError(f"{path}:{number}: answers must be a list of texts, not {answers!r:.60}; run it again")


def _content(path: Path, task: str) -> dict[str, Any]:
    """A result file, lmms-eval's own or the sweep's, if it has the places for scores."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        whole = isinstance(content, dict)
        if path.name.endswith(_SCORES):
            whole = whole and isinstance(content["results"][task], dict)
        else:
            whole = whole and all(isinstance(content[name], dict) for name in ("metrics", "counts"))
            whole = whole and (content["config"] is None or "method" in content["config"])
    except (ValueError, RecursionError, LookupError, TypeError):
        whole = False
    if not whole:
        raise ConfigError(f"{path}: damaged, or no result of {task}; run it again")
    return content


def write(found: list[Judged]) -> None:
    """All of them, each compared with the full cache if its scores are there."""
    full = {judged.task: judged.samples for judged in found if _is_full(judged)}
    for judged in found:
        judged.write(full.get(judged.task))


def _is_full(judged: Judged) -> bool:
    if not judged.result.is_file():
        return False
    config = _content(judged.result, judged.task)["config"]
    return config is not None and config["method"] == "full"

"""Finished runs of a results folder with open answers: every result with the very samples it was computed from.

lmms-eval names both by the date of their run: `<date>_results.json` and `<date>_samples_<task>.jsonl`. A sweep's
`result.<task>.json` says which date is its own. Of runs by hand the newest of every fingerprint counts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kv_caches import ConfigError
from lmms_eval_plugins.files import file_name, result_file
from lmms_eval_plugins.judge import scoring

Samples = list[dict[str, Any]]
_SCORES, _SAMPLES = "_results.json", "_samples_"
_TEXTS = ("question", "answer", "prediction")
_FINGERPRINT = re.compile(r"\bkv_fingerprint=([\w-]+)")


@dataclass(frozen=True)
class Found:
    """One task of one run.

    Attributes:
        folder: of the run. scores: the file with lmms-eval's own results. result: the sweep's file, if it is this
            run's. samples: the task's, as lmms-eval wrote them.
    """

    folder: Path
    task: str
    scores: Path
    result: Path | None
    samples: Samples

    @property
    def entries(self) -> Samples:
        """The open answers, one per sample."""
        return [sample[scoring.METRIC] for sample in self.samples]


def find(folder: Path) -> list[Found]:
    """Tasks with open answers below a folder of runs, or in the folder of one.

    Raises:
        ConfigError: a file of theirs is damaged or of another kind, or samples are not those of their result.
    """
    runs = [path for path in sorted(folder.glob("*")) if path.is_dir() and path.name != "records"]
    nested = [path for path in runs if any(path.glob(f"*/*{_SCORES}"))]
    return [found for run in nested or [folder] for found in _of_run(run)]


def _of_run(run: Path) -> Iterator[Found]:
    written: dict[str, list[Path]] = {}
    for path in sorted(run.rglob(f"*{_SAMPLES}*.jsonl"), key=lambda path: (path.stat().st_mtime, path.name)):
        if _is_open(path):
            written.setdefault(path.stem.partition(_SAMPLES)[2], []).append(path)
    for name, paths in written.items():
        task = _named(name, paths)
        result = result_file(run, task)
        of_sweep = result.is_file()
        for path in [_of_result(result, task, paths)] if of_sweep else _by_hand(task, paths):
            found = Found(run, task, _scores_of(path), result if of_sweep else None, _samples(path))
            _check_entries(path, found.samples)
            _check_pair(path, found)
            yield found


def _named(name: str, paths: list[Path]) -> str:
    """The task whose files have this name, as the results beside them spell it; see `files.file_name`."""
    for path in filter(Path.is_file, map(_scores_of, paths)):
        content = _json(path)
        for task in content.get("results") or () if isinstance(content, dict) else ():
            if file_name(task) == name:
                return str(task)
    return name


def _json(path: Path) -> Any:
    """What a file says; None if that is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return None


def _is_open(path: Path) -> bool:
    with path.open("rb") as file:
        return scoring.METRIC.encode() in file.readline()


def _of_result(result: Path, task: str, paths: list[Path]) -> Path:
    """The sample file of the run that a sweep's result is of."""
    date = str(read(result, task)["lmms_eval_date"]).replace(":", "-")
    mine = [path for path in paths if _date(path) == date]
    if len(mine) != 1:
        raise ConfigError(
            f"{result} is of the run of {date}, whose samples are not here, but {', '.join(p.name for p in paths)}; "
            "run the sweep again: its answers are in the store"
        )
    for path in paths[paths.index(mine[0]) + 1 :]:
        print(f"[kv] {path}: left out, its run did not finish; {result.name} is of {date}", flush=True)
    return mine[0]


def _by_hand(task: str, paths: list[Path]) -> list[Path]:
    """The newest run with a result of every fingerprint."""
    finished = [path for path in paths if _scores_of(path).is_file()]
    return list({_fingerprint(read(_scores_of(path), task)): path for path in finished}.values())


def _date(samples: Path) -> str:
    return samples.stem.partition(_SAMPLES)[0]


def _scores_of(samples: Path) -> Path:
    return samples.with_name(_date(samples) + _SCORES)


def _fingerprint(content: dict[str, Any]) -> str | None:
    """What lmms-eval's own results say of the configuration that ran; those of before `kv` in an argument."""
    if isinstance(ours := content.get("kv"), dict):
        return str(ours.get("fingerprint"))
    config = content.get("config")
    found = _FINGERPRINT.search(str(config.get("model_args"))) if isinstance(config, dict) else None
    return found[1] if found else None


def _check_pair(path: Path, found: Found) -> None:
    """Refuses samples that are not, all of them and no other, those of their result."""
    ids, scores, why = {str(sample["doc_id"]) for sample in found.samples}, None, None
    if len(ids) != len(found.samples):
        why = f"{len(found.samples)} samples of {len(ids)} documents, so more than one run wrote it"
    if found.scores.is_file():
        scores = read(found.scores, found.task)
        known = (scores.get("task_hashes") or {}).get(found.task)
        if known not in (None, _hash(found.samples)):
            why = why or f"not the samples of {found.scores.name}, or not all of them"
    if found.result is not None:
        result = read(found.result, found.task)
        samples, failed = (result["counts"].get(name) or 0 for name in ("samples", "failed"))
        if samples != len(ids) + failed:
            why = why or f"{len(ids)} samples, but {found.result.name} counts {samples}, {failed} of them failed"
        if scores is not None and _fingerprint(scores) not in (None, result.get("fingerprint")):
            why = why or f"of {_fingerprint(scores)}, but {found.result.name} is of {result.get('fingerprint')}"
    if why:
        raise ConfigError(f"{path}: {why}; run it again: its answers are in the store")


def _hash(samples: Samples) -> str:
    """What lmms-eval 0.7.3 calls the hash of a task."""
    text = "".join(f"sample_{number}{sample.get('doc_hash')}" for number, sample in enumerate(samples))
    return hashlib.sha256(text.encode()).hexdigest()


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


def _check_entries(path: Path, samples: Samples) -> None:
    for number, sample in enumerate(samples, 1):
        entry = sample.get(scoring.METRIC)
        if not isinstance(entry, dict):
            raise ConfigError(f"{path}:{number}: no answer to judge in {str(sample)[:60]!r}; run it again")
        for name in _TEXTS:
            if not isinstance(entry.get(name), str):
                raise ConfigError(f"{path}:{number}: {name} must be text, not {entry.get(name)!r:.60}; run it again")
        answers = entry.get("answers") or []
        if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
            raise ConfigError(f"{path}:{number}: answers must be a list of texts, not {answers!r:.60}; run it again")


def read(path: Path, task: str) -> dict[str, Any]:
    """A result file, lmms-eval's own or the sweep's, if it has the places for scores.

    Raises:
        ConfigError: it has not.
    """
    content = _json(path)
    try:
        whole = isinstance(content, dict)
        if path.name.endswith(_SCORES):
            whole = whole and isinstance(content["results"][task], dict)
        else:
            whole = whole and all(isinstance(content[name], dict) for name in ("metrics", "counts"))
            whole = whole and isinstance(content["lmms_eval_date"], str)
            whole = whole and (content["config"] is None or "method" in content["config"])
    except (LookupError, TypeError):
        whole = False
    if not whole:
        raise ConfigError(f"{path}: damaged, or no result of {task}; run it again")
    return content

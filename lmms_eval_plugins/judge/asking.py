"""All answers without a verdict put to the judge model: the cost, a confirmation, then many requests at once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from threading import Event
from typing import Any

from lmms_eval_plugins import records
from lmms_eval_plugins.errors import RunStopped
from lmms_eval_plugins.judge import prompt
from lmms_eval_plugins.judge.client import TRIES, JudgeClosed, ask, client_for
from lmms_eval_plugins.judge.settings import JudgeSettings
from lmms_eval_plugins.judge.verdicts import FOLDER, Verdicts, key_of
from lmms_eval_plugins.progress import Progress

_CHARACTERS_PER_TOKEN = 4
_MOST_FAILURES, _MOST_REASONS = 16, 5
Entry = dict[str, Any]


def ask_missing(entries: Iterable[Entry], judge: JudgeSettings, confirmed: bool) -> None:
    """Asks once for every distinct answer that has no verdict; each verdict is on the disk as soon as it is there.

    Raises:
        RunStopped: not confirmed, or the server gives no verdicts. What was judged before is kept.
    """
    verdicts = Verdicts(records.base_dir() / FOLDER).open()
    try:
        entries = list(entries)
        distinct = {key_of(entry, judge): entry for entry in entries}
        missing = [entry for key, entry in distinct.items() if verdicts.find(key) is None]
        missing.sort(key=lambda entry: key_of(entry, judge) in verdicts.failed)  # what is new first
        if missing:
            print(f"[kv] {_estimate(len(entries), len(distinct), missing, judge)}", flush=True)
            _confirm(confirmed)
            _Round(judge, verdicts, Progress(len(missing), active=True)).run(missing)
    finally:
        verdicts.close()


def _estimate(entries: int, distinct: int, missing: list[Entry], judge: JudgeSettings) -> str:
    characters = sum(len(prompt.messages(entry)[0]["content"]) for entry in missing)
    sent, back = characters / _CHARACTERS_PER_TOKEN, len(missing) * prompt.MAX_TOKENS
    return (
        f"judge {judge.model} at {judge.host}: {entries} answers, {distinct} of them distinct, "
        f"{distinct - len(missing)} judged before; {len(missing)} requests (each up to {TRIES} times), about "
        f"{_count(sent)} tokens sent and at most {_count(back)} received"
    )


def _count(tokens: float) -> str:
    return f"{tokens / 1e6:.1f} million" if tokens >= 1e6 else f"{max(1, round(tokens / 1000))} thousand"


def _confirm(confirmed: bool) -> None:
    if confirmed:
        return
    if not sys.stdin.isatty():
        raise RunStopped("nothing was asked: confirm these requests with --yes (answers are stored; nothing is lost)")
    try:
        said = input("Send these requests? [y/N] ").strip().lower()
    except EOFError:
        said = ""
    if said not in ("y", "yes"):
        raise RunStopped("nothing was asked")


class _Round:
    """Requests in flight, how many answers in a row have no verdict, and why."""

    def __init__(self, judge: JudgeSettings, verdicts: Verdicts, progress: Progress):
        self.judge, self.verdicts, self.progress = judge, verdicts, progress
        self.flying: set[Future[Entry]] = set()
        self.failures, self.reasons = 0, Counter[str]()

    def run(self, missing: list[Entry]) -> None:
        """As many requests at once as allowed; another one starts only when one has ended."""
        stopping, pool = Event(), ThreadPoolExecutor(self.judge.concurrency)
        try:
            with client_for(self.judge) as client:
                ahead = iter([partial(ask, client, self.judge, entry, stopping) for entry in missing])
                while self._start(pool, ahead):
                    self._land()
        except JudgeClosed as closed:
            raise RunStopped(f"the judge at {self.judge.host} answers nothing more: {closed}") from closed
        finally:
            stopping.set()
            pool.shutdown(cancel_futures=True)
            ended = [future.result() for future in self.flying if not future.cancelled() and not future.exception()]
            self.verdicts.append([record for record in ended if record["status"] == "judged"])
            self.progress.close()
            self._say_reasons()

    def _start(self, pool: ThreadPoolExecutor, ahead: Iterator[Callable[[], Entry]]) -> bool:
        self.flying |= {pool.submit(one) for one in islice(ahead, self.judge.concurrency - len(self.flying))}
        return bool(self.flying)

    def _land(self) -> None:
        done, self.flying = wait(self.flying, return_when=FIRST_COMPLETED)
        found = [future.result() for future in done if not future.exception()]
        self.verdicts.append(found)
        self.progress.advance(len(found))
        for future in done:
            future.result()
        self._stop_without_verdicts(found)

    def _stop_without_verdicts(self, found: list[Entry]) -> None:
        for record in found:
            failed = record["status"] == "unjudged"
            self.failures = self.failures + 1 if failed else 0
            self.reasons.update([record["error"]] if failed else ())
        if self.failures >= _MOST_FAILURES:
            raise RunStopped(
                f"the judge at {self.judge.host} gave no verdict on {self.failures} answers in a row, the last with: "
                f"{found[-1]['error']}; once it does, run the same command again to go on"
            )

    def _say_reasons(self) -> None:
        """Why answers stay unjudged, the most frequent reasons first."""
        shown = [f"{count} x {reason}" for reason, count in self.reasons.most_common(_MOST_REASONS)]
        others = self.reasons.total() - sum(count for _, count in self.reasons.most_common(_MOST_REASONS))
        if shown:
            others_too = [f"{others} x other reasons"] if others else []
            print(f"[kv] without a verdict: {'; '.join([*shown, *others_too])}", flush=True)

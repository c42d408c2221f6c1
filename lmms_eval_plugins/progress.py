"""Progress over answers: one bar on a terminal, one line now and then in a log."""

from __future__ import annotations

import sys
import time

from tqdm import tqdm

from kv_caches.errors import one_line

_SECONDS_BETWEEN_LINES = 30.0


class Progress:
    """Counts answers of all configurations together."""

    def __init__(self, total: int, active: bool):
        self.total, self.done, self._active = total, 0, active
        self._started = self._said = time.monotonic()
        self._bar = tqdm(total=total, desc="answers", unit="answer", disable=not (active and sys.stderr.isatty()))

    def advance(self, answers: int) -> None:
        """Some more are done."""
        self.done += answers
        self._bar.update(answers)
        now = time.monotonic()
        due = now - self._said > _SECONDS_BETWEEN_LINES or self.done == self.total
        if due and self._active and self._bar.disable:
            self._said = now
            print(f"[kv] {self._line(now - self._started)}", flush=True)

    def _line(self, seconds: float) -> str:
        rate = self.done / max(seconds, 1e-9)
        left = (self.total - self.done) / rate if rate else 0.0
        return f"{self.done} of {self.total} answers, {rate:.3g} per second, {_clock(left)} left"

    def note(self, text: str) -> None:
        """A line that does not break the bar."""
        tqdm.write(one_line(text))

    def close(self) -> None:
        self._bar.close()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

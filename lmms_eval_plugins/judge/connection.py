"""How the judge is reached: every request has a time and a size that nothing it is answered with can exceed.

The timeout of an HTTP client counts from one received part to the next, so a server that sends a byte now and then
would hold a request for ever; and no client limits how much it reads. Both are counted here where bytes arrive.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai

from lmms_eval_plugins.judge.settings import JudgeSettings

MOST_BYTES = 1 << 20
"""Of one response. A verdict of 100 tokens takes about one KiB; a model that reasons aloud, some hundred."""


class TooLong(Exception):
    """A response that does not end."""


class _Allowance(threading.local):
    """What is left to the request of this thread."""

    until, unread = math.inf, math.inf


_allowance = _Allowance()


@contextmanager
def one_request(judge: JudgeSettings) -> Iterator[None]:
    """All that a client of `client_for` does in this thread meanwhile has the time and the size of one request."""
    _allowance.until, _allowance.unread = time.monotonic() + judge.timeout, MOST_BYTES
    try:
        yield
    finally:
        _allowance.until = _allowance.unread = math.inf


def client_for(judge: JudgeSettings) -> openai.OpenAI:
    """A client for several threads, each inside `one_request`; it follows no redirect and tries nothing again."""
    http = openai.DefaultHttpxClient(
        follow_redirects=False,
        timeout=judge.timeout,
        headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [_refuse_compressed]},
    )
    for transport in (http._transport, *http._mounts.values()):  # the second are proxies; None means without one
        if transport is not None:
            transport._pool._network_backend = _Backend(transport._pool._network_backend)
    return openai.OpenAI(api_key=judge.key or "none", base_url=judge.base_url, max_retries=0, http_client=http)


def _refuse_compressed(response: Any) -> None:
    """A few bytes can become as many as the memory holds."""
    if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise TooLong("the response is compressed, which was not asked for")


class _Backend:
    """Makes connections that keep to the allowance; all else is the client's own."""

    def __init__(self, backend: Any):
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def connect_tcp(self, *args: Any, timeout: float | None = None, **options: Any) -> _Stream:
        return _Stream(self._backend.connect_tcp(*args, timeout=_left(timeout), **options))


class _Stream:
    def __init__(self, stream: Any):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def start_tls(self, *args: Any, timeout: float | None = None, **options: Any) -> _Stream:
        return _Stream(self._stream.start_tls(*args, timeout=_left(timeout), **options))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout))

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(max_bytes, _left(timeout))
        _allowance.unread -= len(data)
        if _allowance.unread < 0:
            raise TooLong(f"the response is longer than {MOST_BYTES >> 20} MiB")
        return data


def _left(timeout: float | None) -> float | None:
    """Seconds that the next step may take.

    Raises:
        TimeoutError: none are left.
    """
    left = _allowance.until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return timeout if left == math.inf else min(left, math.inf if timeout is None else timeout)

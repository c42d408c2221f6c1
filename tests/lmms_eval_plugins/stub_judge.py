"""An OpenAI-compatible server on this machine that misbehaves as it is told."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "judge-2026-01-01"
GOOD = "{'pred': 'yes', 'score': 4}"
Reply = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers each request by the next reply of the script, or with the last one for ever."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server: Any = self.server
        with server.lock:
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.requests.append({"time": time.monotonic(), "path": self.path, "body": body} | headers)
            turn = min(len(server.requests), len(server.script)) - 1
        server.script[turn](self)

    def send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content))}.items():
            self.send_header(name, (headers or {}).get(name, value))
        for name, value in (headers or {}).items():
            if name not in ("Content-Type", "Content-Length"):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass


def completion(content: Any) -> bytes:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice]}
    return json.dumps(whole).encode()


def says(content: Any) -> Reply:
    """A well-formed completion."""
    return lambda handler: handler.send(200, completion(content))


def fails(status: int, body: dict[str, Any] | None = None, **headers: str) -> Reply:
    content = json.dumps({"error": body or {"message": "no"}}).encode()
    return lambda handler: handler.send(
        status, content, {name.replace("_", "-"): value for name, value in headers.items()}
    )


def truncated(handler: Handler) -> None:
    handler.send(200, completion(GOOD)[:-30])


def cut_off(handler: Handler) -> None:
    """Less than announced, then the connection ends."""
    whole = completion(GOOD)
    handler.close_connection = True
    handler.send(200, whole[:40], {"Content-Length": str(len(whole))})


def dribbled(headers: bytes | None) -> Reply:
    """A byte every 50 ms for seconds: of the body after whole headers, or of the headers themselves (None)."""

    def reply(handler: Handler) -> None:
        handler.close_connection = True
        whole = completion(GOOD)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(whole)}\r\n".encode()
        if headers is not None:
            handler.wfile.write(head + b"\r\n")
        _write_until_refused(handler, whole if headers is not None else head, 0.05)

    return reply


def endless(handler: Handler) -> None:
    handler.close_connection = True
    handler.send(200, b"[", {"Content-Length": str(1 << 40)})
    _write_until_refused(handler, b" " * (1 << 16), size=1 << 16)


def endless_error(handler: Handler) -> None:
    handler.close_connection = True
    handler.send(500, b"[", {"Content-Length": str(1 << 40)})
    _write_until_refused(handler, b" " * (1 << 16), size=1 << 16)


def _write_until_refused(handler: Handler, content: bytes, pause: float = 0.0, size: int = 1) -> None:
    """Over and over, until the other side has had enough."""
    with suppress(OSError):
        for number in itertools.count():
            start = number * size % len(content)
            handler.wfile.write(content[start : start + size])
            time.sleep(pause)


def slow(seconds: float) -> Reply:
    def reply(handler: Handler) -> None:
        time.sleep(seconds)
        says(GOOD)(handler)

    return reply


@contextmanager
def serving(script: Sequence[Reply], port: int = 0) -> Iterator[Any]:
    """The server; its `requests` so far, and its `url`."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.requests, server.script, server.lock = [], list(script), threading.Lock()
    server.url = f"http://127.0.0.1:{server.server_port}/v1/chat/completions"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()

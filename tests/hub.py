"""A stand-in for the Hugging Face hub on 127.0.0.1: as much of its API as reading data sets asks for."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_standin"
_REPO = r"/datasets/(?P<repo>[\w.-]+/[\w.-]+)"
_FILE = re.compile(_REPO + r"/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
_API = re.compile("/api" + _REPO + r"(/(?P<what>revision|tree|paths-info)/(?P<revision>[^/]+)/?(?P<path>.*))?")


@dataclass
class Hub:
    """Repositories of data sets by name, each with its files.

    Attributes:
        private: repositories that a request sees with `TOKEN` only.
        asked: what was asked for, in order: method and path.
    """

    url: str
    repositories: dict[str, dict[str, bytes]]
    private: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def commit(self, repo: str) -> str:
        """The one revision that a repository has."""
        return hashlib.sha1(repo.encode()).hexdigest()


@contextmanager
def serving(repositories: dict[str, dict[str, bytes]]) -> Iterator[Hub]:
    """The hub on a free port, while the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.hub = Hub(f"http://127.0.0.1:{server.server_port}", repositories)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield server.hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Tests read `Hub.asked`."""

    def do_GET(self) -> None:
        hub: Hub = self.server.hub
        path = unquote(urlsplit(self.path).path)
        hub.asked.append(f"{self.command} {path}")
        if path == "/api/whoami-v2" and self._known():
            token = {"type": "access_token", "accessToken": {"displayName": "reading", "role": "read"}}
            return self._answer(json.dumps({"type": "user", "name": "someone", "auth": token}).encode(), {})
        found = _FILE.fullmatch(path) or _API.fullmatch(path)
        repo = found and found["repo"]
        if repo not in hub.repositories:
            return self._refuse(404 if self._known() else 401, "RepoNotFound")
        if repo in hub.private and not self._known():
            return self._refuse(401, "GatedRepo")
        if found["revision"] not in (None, "main", hub.commit(repo)):
            return self._refuse(404, "RevisionNotFound")
        files = hub.repositories[repo]
        if path.startswith("/api/"):
            return self._answer(json.dumps(self._described(hub, found, files)).encode(), {})
        if found["path"] not in files:
            return self._refuse(404, "EntryNotFound")
        content = files[found["path"]]
        return self._answer(content, {"X-Repo-Commit": hub.commit(repo), "ETag": f'"{_etag(content)}"'})

    do_HEAD = do_POST = do_GET

    def _known(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _described(self, hub: Hub, found: re.Match[str], files: dict[str, bytes]) -> Any:
        if found["what"] not in ("tree", "paths-info"):
            names = [{"rfilename": name} for name in files]
            return {"id": found["repo"], "sha": hub.commit(found["repo"]), "siblings": names, "tags": []}
        if found["what"] == "tree":
            if "recursive=true" in self.path.lower():
                return [_file(name, files[name]) for name in files]
            return _entries(files, found["path"])
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["paths"]
        return [_file(name, files[name]) for name in asked if name in files]

    def _refuse(self, status: int, code: str) -> None:
        self._answer(b"", {"X-Error-Code": code}, status)

    def _answer(self, content: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _entries(files: dict[str, bytes], folder: str) -> list[dict[str, Any]]:
    """What lies directly in a folder."""
    start = f"{folder}/" if folder else ""
    inside = {name[len(start) :] for name in files if name.startswith(start)}
    folders = sorted({name.split("/")[0] for name in inside if "/" in name})
    found = [{"type": "directory", "path": start + name, "oid": _etag(name.encode())} for name in folders]
    return found + [_file(start + name, files[start + name]) for name in sorted(inside) if "/" not in name]


def _file(name: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "path": name, "size": len(content), "oid": _etag(content)}


def _etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()

"""Who judges, from the environment: `KV_JUDGE`, and for a judge model the variables of the paper's script."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kv_caches import ConfigError
from kv_caches.values import number, one_of, whole

KINDS = ("api", "exact", "none")
DEFAULT_URL = "https://api.openai.com/v1/chat/completions"
_ENDING = "/chat/completions"
_CONCURRENCY, _MOST = 8, 256


@dataclass(frozen=True)
class JudgeSettings:
    """Attributes:
    kind: `api` (a judge model), `exact` (the offline rule) or `none`.
    model: as it is asked for.
    base_url: of an OpenAI-compatible server.
    key: never printed and never stored.
    concurrency: most requests at once.
    backoff: seconds before the second try; doubled for each further one.
    timeout: seconds for one request.
    """

    kind: str
    model: str = ""
    base_url: str = ""
    key: str = field(default="", repr=False)
    concurrency: int = _CONCURRENCY
    backoff: float = 1.0
    timeout: float = 60.0

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> JudgeSettings:
        """Reads what is set and checks each value; what lacks is told by `missing`.

        Raises:
            ConfigError: a value that is not allowed.
        """
        return cls(
            kind=one_of("KV_JUDGE", env.get("KV_JUDGE") or "api", KINDS),
            model=env.get("GPT_EVAL_MODEL_NAME", "").strip(),
            base_url=_base_url(env.get("OPENAI_API_URL") or DEFAULT_URL),
            key=env.get("OPENAI_API_KEY", "").strip(),
            concurrency=whole("KV_JUDGE_CONCURRENCY", env.get("KV_JUDGE_CONCURRENCY") or _CONCURRENCY, 1, _MOST),
            backoff=_seconds("KV_JUDGE_BACKOFF", env, 1.0),
            timeout=_seconds("KV_JUDGE_TIMEOUT", env, 60.0),
        )

    @property
    def missing(self) -> list[str]:
        """Variables without which the judge cannot be asked; a server of one's own needs no key."""
        if self.kind != "api":
            return []
        without_key = not self.key and self.host == urlsplit(DEFAULT_URL).hostname
        return ["OPENAI_API_KEY"] * without_key + ["GPT_EVAL_MODEL_NAME"] * (not self.model)

    @property
    def server(self) -> str:
        """The address without user and password: verdicts belong to it."""
        parts = urlsplit(self.base_url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2].lower()).geturl()

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""


def _base_url(url: str) -> str:
    """The address without `/chat/completions`, which the client adds; a bare host gets `/v1`."""
    shown = "(not shown)"  # there may be a password in what does not parse
    try:
        parts = urlsplit(url.strip())
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not parts.query
    except ValueError:  # a port that is no number, or half an IPv6 address
        usable = False
    if not usable:
        raise ConfigError(
            f"OPENAI_API_URL={shown} is no address of a server, such as {DEFAULT_URL} or http://localhost:8000/v1"
        )
    path = parts.path.rstrip("/")
    path = path.removesuffix(_ENDING) if path.endswith(_ENDING) else path or "/v1"
    return parts._replace(path=path, fragment="").geturl()


def _seconds(name: str, env: Mapping[str, str], default: float) -> float:
    return number(name, env.get(name) or default, most=3600, unit="a number of seconds")

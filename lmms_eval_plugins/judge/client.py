"""One answer put to the judge model: asked again, within bounds, until there is a verdict."""

from __future__ import annotations

import os
import random
import time
from email.utils import parsedate_to_datetime
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import openai
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
)

from lmms_eval_plugins.judge import prompt
from lmms_eval_plugins.judge.connection import TooLong, client_for, one_request
from lmms_eval_plugins.judge.settings import JudgeSettings
from lmms_eval_plugins.judge.verdicts import key_of
from lmms_eval_plugins.redaction import redacted

__all__ = ["TRIES", "TRIES_OF_REPLIES", "JudgeClosed", "ask", "client_for"]
TRIES, TRIES_OF_REPLIES = 6, 3
"""Requests for one answer; those after which a judge that replies without a verdict is not asked again."""
_LONGEST_BACKOFF, _LONGEST_WAIT = 60.0, 300.0
_SHOWN, _LONGEST_NAME, _LONGEST_REPLY = 300, 100, 10_000
_CLOSED = {401: "the key is not accepted", 403: "access is refused", 404: "the address or the model is unknown"}


class JudgeClosed(Exception):
    """The server will answer no request of this kind; the message says why, without the key."""


class _Failed(Exception):
    """One try gave no verdict.

    Attributes:
        reply: raw, if there was one. after: seconds that the server asked to wait. served: the server did its part.
    """

    def __init__(self, reason: str, reply: str | None = None, after: float | None = None, model: str | None = None):
        super().__init__(reason)
        self.reply, self.after, self.model = reply, after, model
        self.served = reply is not None


class _Again(_Failed):
    """Another try may help."""


def ask(client: openai.OpenAI, judge: JudgeSettings, entry: dict[str, Any], stopping: Event) -> dict[str, Any]:
    """The line for the verdict store: `status` judged, or unjudged with the last reason.

    Args:
        stopping: once set, nothing is tried again.

    Raises:
        JudgeClosed: no further request makes sense.
    """
    tries = Retrying(
        stop=_is_enough,
        sleep=sleep_using_event(stopping),
        wait=lambda state: _wait(state, judge.backoff),
        retry=retry_if_exception_type(_Again),
        reraise=True,
    )
    asked = {name: entry[name] for name in ("question", "answer", "prediction")}
    record = {"key": key_of(entry, judge), **asked, "asked_model": judge.model, "server": judge.server}
    record["prompt_version"] = prompt.VERSION
    started = time.monotonic()
    try:
        verdict = {"status": "judged", "error": None} | tries(_once, client, judge, entry, stopping)
    except _Failed as failed:
        verdict = {"status": "unjudged", "error": str(failed), "served": failed.served}
        verdict |= {"model": failed.model, "reply": failed.reply}
    for name in ("error", "model", "reply"):
        if verdict[name] is not None:
            verdict[name] = redacted(verdict[name], os.environ | {"OPENAI_API_KEY": judge.key})
    number = tries.statistics.get("attempt_number", 1)
    return record | verdict | {"tries": number, "seconds": round(time.monotonic() - started, 3)}


def _once(client: openai.OpenAI, judge: JudgeSettings, entry: dict[str, Any], stopping: Event) -> dict[str, Any]:
    if stopping.is_set():
        raise _Failed("stopped")
    try:
        with one_request(judge):
            response = client.chat.completions.create(
                model=judge.model,
                messages=prompt.messages(entry),  # type: ignore[arg-type]
                temperature=prompt.TEMPERATURE,
                max_tokens=prompt.MAX_TOKENS,
            )
        model, reply = str(response.model)[:_LONGEST_NAME], response.choices[0].message.content
    except openai.APIStatusError as error:
        raise _of_status(error) from error
    except openai.APITimeoutError as error:
        raise _Again("no reply in time") from error
    except openai.APIConnectionError as error:
        cause = error.__cause__ or error
        if isinstance(cause, TooLong | TimeoutError):
            raise _Again(str(cause) or "no reply in time") from error
        raise _Again(f"no connection ({type(cause).__name__})") from error
    except (TooLong, TimeoutError) as error:
        raise _Again(str(error) or "no reply in time") from error
    except (openai.OpenAIError, RecursionError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise _Again(f"the response cannot be read ({type(error).__name__})") from error
    if not isinstance(reply, str) or not reply.strip():
        raise _Again("the reply is empty or refused", reply="", model=model)
    if len(reply) > _LONGEST_REPLY:
        reply = reply[:_LONGEST_REPLY]
        raise _Again(f"the reply is longer than {_LONGEST_REPLY} characters", reply=reply, model=model)
    try:
        return prompt.read(reply) | {"model": model, "reply": reply}
    except prompt.Unreadable as error:
        raise _Again(str(error), reply=reply, model=model) from error


def _of_status(error: openai.APIStatusError) -> Exception:
    status = error.status_code
    if 300 <= status < 400:
        return JudgeClosed(
            f"HTTP {status}: it sends requests on to {_host(error.response.headers.get('location'))}, and answers are "
            "sent nowhere but to OPENAI_API_URL; set it to the address that answers itself"
        )
    if status in _CLOSED:
        return JudgeClosed(f"HTTP {status}: {_CLOSED[status]}")
    if status == 429 and error.code == "insufficient_quota":
        return JudgeClosed("HTTP 429: the account has no quota left")
    if status not in (408, 409, 429) and status < 500:
        return _Failed(f"HTTP {status}: {str(error)[:_SHOWN]}")
    after = _retry_after(error.response.headers.get("retry-after"))
    if after is not None and after > _LONGEST_WAIT:
        return _Failed(f"HTTP {status}: the server asks to wait {after:.0f} s")
    return _Again(f"HTTP {status}", after=after)


def _host(address: str | None) -> str:
    try:
        return urlsplit(address or "").hostname or "another path"
    except ValueError:
        return "another host"


def _is_enough(state: RetryCallState) -> bool:
    """A judge that replies, but without a verdict, hardly does better the next time."""
    failed = state.outcome.exception() if state.outcome else None
    return state.attempt_number >= (TRIES_OF_REPLIES if getattr(failed, "served", False) else TRIES)


def _retry_after(value: str | None) -> float | None:
    """Seconds, given as such or as a date."""
    try:
        return max(0.0, float(value or ""))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value or "").timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def _wait(state: RetryCallState, backoff: float) -> float:
    """Doubled with every try, with jitter so that threads do not come back together; never less than asked for."""
    failed = state.outcome.exception() if state.outcome else None
    own = min(_LONGEST_BACKOFF, backoff * 2 ** (state.attempt_number - 1)) * random.uniform(0.75, 1.25)
    after = getattr(failed, "after", None)
    return own if after is None else max(after, own if after else 0.0)

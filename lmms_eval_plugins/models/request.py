"""One request of lmms-eval, whatever the layout of its arguments."""

import json
from dataclasses import dataclass
from typing import Any

from lmms_eval.api.instance import Instance


@dataclass(frozen=True)
class Request:
    """A generation request with its document looked up.

    Attributes:
        index: place in the list that lmms-eval gave.
        context: the task's text.
        gen_kwargs: the task's generation arguments.
        ask: the task's `doc_to_messages` (chat) or `doc_to_visual` (simple).
        instance: lmms-eval's own object.
        is_chat: `ask` gives messages.
    """

    index: int
    context: str
    gen_kwargs: dict[str, Any]
    ask: Any
    doc_id: int
    task: str
    split: str
    instance: Instance
    is_chat: bool

    @classmethod
    def of(cls, index: int, instance: Instance, chat: bool) -> "Request":
        """Reads the arguments; in chat requests the generation arguments come third, in simple ones second."""
        context, second, third, doc_id, task, split = instance.args
        ask, gen_kwargs = (second, third) if chat else (third, second)
        return cls(index, context, gen_kwargs, ask, doc_id, task, split, instance, chat)

    @property
    def is_padding(self) -> bool:
        """Added by lmms-eval to give all processes the same number of requests; its answer is thrown away."""
        return bool((self.instance.metadata or {}).get("__padding_only__"))

    @property
    def decoding_key(self) -> str:
        """Equal for requests that may share a batch."""
        return json.dumps(self.gen_kwargs, sort_keys=True, default=str)

    def parts(self, document: dict[str, Any]) -> list[Any]:
        """What the task shows beside its text: pictures and videos (simple), or all parts of its messages (chat)."""
        found = list(self.ask(document) or [])
        if not (found and isinstance(found[0], dict) and "role" in found[0]):
            return found
        contents = [message["content"] for message in found]
        return [part for parts in contents for part in ([parts] if isinstance(parts, str) else parts)]

    def media(self, document: dict[str, Any]) -> list[Any]:
        """The pictures, videos and sounds among them."""
        chat = self.is_chat
        return [part for part in self.parts(document) if not chat or _is_medium(part)]

    def asks_nothing(self, document: dict[str, Any]) -> bool:
        """Neither text nor picture; a picture alone is a prompt."""
        if self.context.strip():
            return False
        parts = self.parts(document)
        return not any(_says_something(part) for part in parts) if self.is_chat else not parts

    def leave_out(self) -> None:
        """Takes the sample out of its task, so that no metric sees it."""
        task = getattr(self.ask, "__self__", None)
        if task is not None and task.instances is not None:
            task.instances[:] = [kept for kept in task.instances if kept is not self.instance]


def _is_medium(part: str | dict[str, Any]) -> bool:
    return not isinstance(part, str) and part["type"] != "text"


def _says_something(part: str | dict[str, Any]) -> bool:
    if isinstance(part, str):
        return bool(part.strip())
    return part["type"] != "text" or bool(part["text"].strip())


def batches(requests: list[Request], size: int) -> list[list[Request]]:
    """Groups requests with equal generation arguments; longest text first where a batch is padded."""
    groups: dict[str, list[Request]] = {}
    for request in requests:
        groups.setdefault(request.decoding_key, []).append(request)
    made = []
    for group in groups.values():
        if size > 1:
            group.sort(key=lambda request: -len(request.context))
        made += [group[i : i + size] for i in range(0, len(group), size)]
    return made

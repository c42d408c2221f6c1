"""What a wrapper is asked: requests with the hash that their answers are stored under."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lmms_eval.api.instance import Instance

from lmms_eval_plugins import generation
from lmms_eval_plugins.errors import stop_on_config_error
from lmms_eval_plugins.models.compute import Asked
from lmms_eval_plugins.models.request import Request
from lmms_eval_plugins.prompts import prompt_hash
from lmms_eval_plugins.session import Session
from lmms_eval_plugins.settings import RunSettings
from lmms_eval_plugins.store import Key


class Asking:
    """Reads lmms-eval's requests.

    Attributes:
        seed: lmms-eval's `--seed` for torch, which decides sampled answers.
        task_dict: documents by task and split, as lmms-eval sets it.
    """

    is_simple: bool
    settings: RunSettings
    session: Session
    seed: int
    task_dict: Any
    _documents: dict[Any, Any] | None = None

    def say(self, note: str) -> None:
        """Prints a line once."""
        raise NotImplementedError

    def document(self, request: Request) -> dict[str, Any]:
        """The task's document behind a request; while a batch is made, its pictures are decoded once."""
        place = (request.task, request.split, request.doc_id)
        if self._documents is None or place not in self._documents:
            found = self.task_dict[request.task][request.split][request.doc_id]
            if self._documents is None:
                return found
            self._documents[place] = found
        return self._documents[place]

    @contextmanager
    def documents_kept(self) -> Iterator[None]:
        """Documents that are looked up inside are kept until the end."""
        self._documents = {}
        try:
            yield
        finally:
            self._documents = None

    def asked(self, instances: list[Instance]) -> list[Asked]:
        """The requests that are no padding, each with what its answer is stored under.

        Raises:
            RunStopped: a generation argument that is not allowed; those without effect are named.
        """
        found, seen = [], dict[Any, int]()
        for index, instance in enumerate(instances):
            request = Request.of(index, instance, chat=not self.is_simple)
            if request.is_padding:
                continue
            key = Key(request.task, request.doc_id, 0, self._known_hash(request))
            repeat = seen[key] = seen.get(key, -1) + 1
            found.append(Asked(request, key._replace(repeat=repeat)))
        self._check_arguments([one.request for one in found])
        return found

    def _check_arguments(self, requests: list[Request]) -> None:
        for given in {request.decoding_key: request.gen_kwargs for request in requests}.values():
            with stop_on_config_error():
                notes = generation.check(given)
            for note in notes:
                self.say(note)
            if self.settings.batch_size > 1 and generation.samples(given):
                self.say("sampled answers are computed one by one: each follows from --seed and its prompt alone")

    def _known_hash(self, request: Request) -> str | None:
        """None if the prompt cannot even be read; the sample will fail."""
        try:
            return self.content_hash(request)
        except Exception:
            return None

    def content_hash(self, request: Request) -> str:
        """The hash of what is asked; raises what reading it raises."""
        seed = self.seed if generation.samples(request.gen_kwargs) else None
        sample = (request.task, request.split, request.doc_id, request.context, request.decoding_key, seed)
        if sample not in self.session.hashes:
            content = request.ask(self.document(request))
            self.session.hashes[sample] = prompt_hash(request.context, request.gen_kwargs, content, seed)
        return self.session.hashes[sample]

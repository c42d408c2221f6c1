"""Caption metrics without Java processes for every metric of every configuration.

lmms-eval's caption tasks tokenise references and answers anew for each of seven metrics, and start METEOR for each
of them though one uses it. Here a process tokenises the same captions once, and all its scores come from one METEOR.
Java is given what it was given before, so scores are the same to the digit.
"""

from __future__ import annotations

import atexit
from typing import Any

Captions = dict[Any, list[dict[str, str]]]


def start_java_once() -> None:
    """Corrects pycocoevalcap in this process; does nothing the second time."""
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    if not hasattr(Meteor, "shared"):
        _tokenise_once(PTBTokenizer)
        _share(Meteor)


def _tokenise_once(tokenizer: Any) -> None:
    stock, known = tokenizer.tokenize, dict[Any, dict[Any, list[str]]]()

    def tokenize(self: Any, captions_for_image: Captions) -> dict[Any, list[str]]:
        key = tuple((image, *(one["caption"] for one in captions)) for image, captions in captions_for_image.items())
        if key not in known:
            known[key] = stock(self, captions_for_image)
        return {image: list(captions) for image, captions in known[key].items()}

    tokenizer.tokenize = tokenize


def _share(meteor: Any) -> None:
    """All objects of the class score through one that is as the class was: it starts Java when it is made."""
    process = type(meteor.__name__, (), {k: v for k, v in vars(meteor).items() if k not in ("__dict__", "__weakref__")})
    running: list[Any] = []

    def compute_score(self: Any, gts: Any, res: Any) -> Any:
        if not running:
            running.append(process())
        try:
            return running[0].compute_score(gts, res)
        except BaseException:
            broken = running.pop()  # it may hold half an answer
            if broken.lock.locked():
                broken.lock.release()  # which its end would wait for
            raise

    atexit.register(running.clear)
    meteor.shared = running
    meteor.__init__ = lambda self: None
    meteor.compute_score = compute_score
    meteor.__del__ = lambda self: None

"""Weights and processor of a wrapper, loaded when an answer is missing and not before."""

from __future__ import annotations

from typing import Any

from transformers import AutoModelForImageTextToText, AutoProcessor

from kv_caches import ConfigError, attach
from lmms_eval_plugins import checkpoint, decoding, generation
from lmms_eval_plugins.errors import RunStopped, in_one_line, stop_on_config_error
from lmms_eval_plugins.session import Session
from lmms_eval_plugins.settings import RunSettings, for_config

_LOADED = ("_model", "processor", "tokenizer", "_eos", "min_pixels", "max_pixels")
"""Attributes that exist as soon as they are asked for: weights are loaded only if an answer is missing."""


class LoadedOnDemand:
    """Has `model`, `processor` and `tokenizer` as soon as they are asked for."""

    settings: RunSettings
    session: Session

    @property
    def model(self) -> Any:
        return self._model

    def __getattr__(self, name: str) -> Any:
        if name not in _LOADED or self.__dict__.get("_loading"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        self._ready()
        return self.__dict__[name]

    def _ready(self) -> None:
        """Loads weights and processor, unless another run of this process has loaded the same."""
        if "_model" in self.__dict__:
            return
        before, wanted = set(self.__dict__), for_config(self.settings, None).fingerprint
        if self.session.loaded is not None and self.session.loaded[0] == wanted:
            self.__dict__.update(self.session.loaded[1])
            return
        self._loading = True
        try:
            self._load()
            if self.settings.kv is not None:
                with stop_on_config_error():
                    attach(self._model, self.settings.kv).detach()
        except Exception as error:
            raise RunStopped(f"pretrained={self.settings.pretrained} cannot be loaded: {in_one_line(error)}") from error
        finally:
            self._loading = False
        new = set(self.__dict__) - before - {"_loading"}
        self.session.loaded = wanted, {name: self.__dict__[name] for name in new}

    def _load(self) -> None:
        run = self.settings
        common = {"revision": run.revision, "trust_remote_code": run.trust_remote_code}
        self.processor = AutoProcessor.from_pretrained(run.pretrained, **common, **self.processor_arguments())
        self.tokenizer = self.processor.tokenizer
        self.tokenizer.padding_side = "left"
        self.check_template()
        kernel = {"attn_implementation": run.attn_implementation} if run.attn_implementation else {}
        told = {"output_loading_info": True, "ignore_mismatched_sizes": True}  # for a line of our own about both
        model, loaded = AutoModelForImageTextToText.from_pretrained(
            run.pretrained, dtype=run.dtype, device_map=run.device_map, **told, **common, **kernel
        )
        checkpoint.check_whole(loaded, dict(model.named_parameters()))
        self._model = model.eval()
        self._eos = decoding.eos_ids(self._model, self.tokenizer)
        self._model.generation_config, notes = generation.cleaned(self._model.generation_config)
        for note in notes:
            self.say(note)

    def check_template(self) -> None:
        """Before weights are loaded: there is a template for prompts.

        Raises:
            ConfigError: there is none, so no prompt could be made.
        """
        if self.processor.chat_template is None:
            raise ConfigError(
                "it has no chat template (chat_template.jinja), so no prompt can be made; copy the one of the "
                "model it was made from into its folder"
            )

    def say(self, note: str) -> None:
        """Prints a line once."""
        raise NotImplementedError

    def processor_arguments(self) -> dict[str, Any]:
        """Further arguments for loading the processor."""
        return {}

"""Arguments of a forward call under the names this release of transformers gives them, and M-RoPE's positions in it.

An M-RoPE model (Qwen2.5-VL, Qwen3-VL) keeps on itself how far the positions of the last prompt are from its tokens, and
every later step reads it there. With two prompts in flight that is one too few, so each cache carries its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from .cache import EvictingLayer
from .errors import UnsupportedError
from .kernels import CACHE_NAMES, cache_argument

BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
PREPARES_POSITIONS = "_prepare_position_ids_for_generation"  # of `generate`, once before its first forward call


class Names:
    """What a model's forward calls its arguments."""

    def __init__(self, model: Any):
        parameters = inspect.signature(model.forward).parameters.values()
        self.cache = cache_argument(model)
        self._in_order = [parameter.name for parameter in parameters if parameter.kind in BY_POSITION]

    def named(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        """All arguments of a call by name, the cache under this release's name.

        Raises:
            TypeError: an argument that is given twice, or more than there are.
            UnsupportedError: two different caches, or one that is no Cache.
        """
        if len(args) > len(self._in_order):
            raise TypeError(f"forward() takes {len(self._in_order)} arguments by position, {len(args)} were given")
        by_position = dict(zip(self._in_order, args))
        if twice := by_position.keys() & kwargs.keys():
            raise TypeError(f"forward() got two values for {', '.join(sorted(twice))}: by position and by name")
        given = by_position | kwargs
        caches = [cache for name in CACHE_NAMES if (cache := given.pop(name, None)) is not None]
        if any(cache is not caches[0] for cache in caches):
            raise UnsupportedError("cache and past_key_values are two different caches: give one of them")
        if caches:
            if not isinstance(caches[0], Cache):
                kind = type(caches[0]).__name__
                raise UnsupportedError(f"a cache of type {kind} cannot be evicted from; use a DynamicCache")
            given[self.cache] = caches[0]
        return given


class MultimodalPositions:
    """Keeps the M-RoPE positions of every prompt with its cache, while attached to a model.

    Each :class:`EvictingLayer` of a cache has ``deltas`` (B, 1): one more than the largest position of the prompt, less
    its tokens. They follow the rows into forks and beams. Models without M-RoPE are left alone.
    """

    def __init__(self, model: Any):
        self._model, self._cache_name = model, cache_argument(model)
        self._owner: Any = getattr(model, "model", None)
        self._handle: Any = None
        self._layers: list[EvictingLayer] = []
        self._width = 0
        if not hasattr(self._owner, "rope_deltas"):
            self._owner = None
            return
        self._handle = model.get_decoder().register_forward_pre_hook(self._note, with_kwargs=True)
        prepare = getattr(model, PREPARES_POSITIONS, None)
        if prepare is not None:
            setattr(model, PREPARES_POSITIONS, self._for_generate(prepare))

    def close(self) -> None:
        """Leave the model as it was. Safe to call twice."""
        if self._handle is not None:
            self._handle.remove()
            self._model.__dict__.pop(PREPARES_POSITIONS, None)
            self._handle = self._owner = None

    def begin(self, cache: Any, width: int) -> None:
        """The next call of the decoder reads this prompt of ``width`` tokens, padding included."""
        if self._owner is not None:
            self._layers, self._width = cache.layers, width

    def go_on(self, cache: Any, given: dict[str, Any]) -> None:
        """Make a decode step go on where its own prompt ended; positions that are given stay."""
        self._layers = []  # of a prompt that failed before its decoder ran
        layer = cache.layers[0]
        if layer.deltas is not None and given.get("position_ids") is None:
            at = layer.seen - layer.offsets.to(layer.deltas.device)[:, None] + layer.deltas
            given["position_ids"] = at.expand(3, -1, -1)

    def _note(self, decoder: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        layers, self._layers = self._layers, []
        if not layers:
            return
        positions, offsets, width = kwargs.get("position_ids"), layers[0].offsets[:, None], self._width
        after: Any = width  # without positions every slot counts, padding too
        if positions is not None:
            offsets = offsets.to(positions.device)
            real = torch.arange(width, device=positions.device) >= offsets
            largest = positions if positions.dim() == 2 else positions[-3:].amax(0)
            after = torch.where(real, largest, 0).amax(-1, keepdim=True) + 1
        for layer in layers:
            layer.deltas = after - width + offsets

    def _for_generate(self, prepare: Callable) -> Callable:
        @wraps(prepare)
        def prepared(inputs: Tensor, model_kwargs: dict[str, Any]) -> Any:
            cache = model_kwargs.get(self._cache_name)
            layer = next(iter(getattr(cache, "layers", [])), None)
            if getattr(layer, "deltas", None) is not None:
                self._owner.rope_deltas = layer.deltas  # type: ignore[union-attr]
            return prepare(inputs, model_kwargs)

        return prepared

"""Bytes of all KV caches alive: an exact account, which the memory of a process is not."""

from __future__ import annotations

import weakref
from typing import Any

from kv_caches.cache import EvictingLayer
from kv_caches.packed import PackedLayer


class CacheMeter:
    """Watches every cache layer that is made while it is entered.

    Attributes:
        peak: most bytes of cached keys and values alive at once, seen whenever a layer grew or was copied.
        prompt: most bytes of prompts alive at once, part of `peak` or not.
        prompts: most whole prompt caches alive at once.
    """

    def __init__(self) -> None:
        self.peak = self.prompt = self.prompts = 0
        self._layers: weakref.WeakSet[EvictingLayer] = weakref.WeakSet()
        self._copies: weakref.WeakSet[EvictingLayer] = weakref.WeakSet()
        self._stock = EvictingLayer.update, EvictingLayer.take, PackedLayer._store

    def __enter__(self) -> CacheMeter:
        update, take, store = self._stock

        def watched_update(layer: EvictingLayer, *args: Any, **kwargs: Any) -> Any:
            result = update(layer, *args, **kwargs)
            self._layers.add(layer)
            self._look()
            return result

        def watched_take(layer: EvictingLayer, *args: Any, **kwargs: Any) -> EvictingLayer:
            copy = take(layer, *args, **kwargs)
            self._layers.add(copy)
            self._copies.add(copy)
            self._look()
            return copy

        def watched_store(layer: PackedLayer, *args: Any, **kwargs: Any) -> None:
            store(layer, *args, **kwargs)
            self._layers.add(layer)
            self._copies.add(layer)
            self._look()

        self._set(watched_update, watched_take, watched_store)
        return self

    def __exit__(self, *exc: object) -> None:
        self._set(*self._stock)

    def _set(self, update: Any, take: Any, store: Any) -> None:
        EvictingLayer.update, EvictingLayer.take = update, take  # type: ignore[method-assign]
        PackedLayer._store = store  # type: ignore[method-assign]

    def _look(self) -> None:
        prompts = [layer for layer in self._layers if layer not in self._copies]
        self.peak = max(self.peak, _bytes(self._layers))
        self.prompt = max(self.prompt, _bytes(prompts))
        self.prompts = max(self.prompts, len(prompts))


def _bytes(layers: Any) -> int:
    """Storages, each once: a view keeps all of its storage alive."""
    states = [state for layer in layers if layer.is_initialized for state in (layer.keys, layer.values)]
    storages = {state.untyped_storage().data_ptr(): state.untyped_storage().nbytes() for state in states}
    return sum(storages.values())

"""Bytes of tensors alive: the allocator's own count on a GPU, a count of storages on a CPU."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Peak:
    """Context manager: ``bytes`` is the most that was alive above what was there at the start.

    Args:
        since: an earlier peak of the same run, whose start counts on a GPU; on a CPU a decode step makes every layer's
            storage anew, so the cache is seen without it.
    """

    def __init__(self, device: str, since: Peak | None = None):
        self.device, self.bytes, self._since = device, 0, since
        self._tracker = None if device.startswith("cuda") else _Storages()

    def __enter__(self) -> Peak:
        if self._tracker is not None:
            self._tracker.__enter__()
        else:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated() if self._since is None else self._since._before
        return self

    def __exit__(self, *exc: Any) -> None:
        if self._tracker is not None:
            self._tracker.__exit__(*exc)
            self.bytes = self._tracker.peak
        else:
            self.bytes = torch.cuda.max_memory_allocated() - self._before


class _Storages(TorchDispatchMode):
    """Follows every storage that an operation makes until it is freed. Scratch inside a kernel is not seen."""

    def __init__(self) -> None:
        super().__init__()
        self.alive, self.peak = 0, 0
        self._known: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {self._key(t) for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and self._key(tensor) not in given:
                self._follow(tensor.untyped_storage())
        return result

    @staticmethod
    def _key(tensor: torch.Tensor) -> int:
        return tensor.untyped_storage()._cdata

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known[key] = size
        self.alive += size
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.alive -= self._known.pop(key, 0)

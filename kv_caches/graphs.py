"""Decode steps recorded once as a CUDA graph and replayed: the host launches one graph instead of every kernel.

A recorded step has fixed shapes. The cache's storage, with its room for generated tokens, stays where it is; how many
tokens each row and head holds is counted on the device, and the attention kernel reads it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicLayer

from . import decode_kernel
from .cache import EvictingLayer, frozen, write_tokens
from .errors import UnsupportedError

ROOM = 512  # tokens that fit behind a recorded layer before it is stored, and the step recorded, anew
MADE_ANEW = ("attention_mask",)  # what a single query needs no mask for; its width would change with every step


class FixedLayer(DynamicLayer):
    """A layer while a step is recorded: the same storage, addressed by device-side counts only."""

    def __init__(self, layer: EvictingLayer, count: Tensor):
        """Args: count: (1,) long, tokens written since this layer was made; shared by all layers."""
        super().__init__()
        self.rules = None
        self.is_initialized = True
        self._layer, self._count = layer, count
        self.keys: Tensor
        self.values: Tensor
        self.keys, self.values, self._starts, self._lengths, self._longest = layer.segments()

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write one token (B, G, 1, d) behind what every row and head holds."""
        slots = self._starts + self._lengths + self._count
        write_tokens(self.keys, self.values, slots, key_states, value_states)
        return key_states, value_states

    def attend(self, call: Callable, module: Any, query: Tensor, kwargs: dict[str, Any]) -> tuple[Tensor, None]:
        """Attention of the newest token, (B, 1, H, d); see :meth:`EvictingLayer.attend`."""
        batch, heads, _, dim = query.shape
        folded = query.reshape(self._starts.shape[0], -1, dim)
        on_card = decode_kernel.usable(query.device, query.dtype, dim, folded.shape[1])
        kernel = decode_kernel.attend if on_card else decode_kernel.reference
        lengths, scaling = self._lengths + self._count + 1, kwargs.get("scaling") or dim**-0.5
        output = kernel(folded, self.keys, self.values, self._starts, lengths, self._longest, scaling)
        return output.reshape(batch, 1, heads, dim), None

    def get_seq_length(self) -> int:
        """Tokens seen before the step was recorded: for shapes only, positions are given as a tensor."""
        return self._layer.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """See :meth:`EvictingLayer.get_mask_sizes`."""
        return self._layer.get_mask_sizes(query_length)


class RecordedStep:
    """One decode step of a cache, recorded; replaying it writes one token and answers with hidden states."""

    def __init__(self, forward: Callable, cache: Any, kwargs: dict[str, Any]):
        self._layers = list(cache.layers)
        self._cache, self._shapes = cache, _shapes(kwargs)
        self._places = _places(cache)
        self._inputs = {name: value.clone() for name, value in kwargs.items() if isinstance(value, Tensor)}
        rest = {name: value for name, value in kwargs.items() if name not in self._inputs}
        count = torch.zeros(1, dtype=torch.long, device=self._layers[0].keys.device)

        fixed = [FixedLayer(layer, count) for layer in self._layers]

        def step() -> Any:
            cache.layers = fixed
            try:
                output = forward(**self._inputs, **rest)
            finally:
                cache.layers = self._layers
            count.add_(1)
            return output

        self._output, self._replay = record(step)
        self._alive = fixed, count  # a graph knows addresses only: what is freed would be given to others
        count.zero_()

    def fits(self, cache: Any, kwargs: dict[str, Any]) -> bool:
        """Whether the next step is this one again."""
        if cache is not self._cache or _places(cache) != self._places or _shapes(kwargs) != self._shapes:
            return False
        if any(map(frozen, [*self._inputs.values(), self._layers[0].keys])):
            return False
        return all(layer.room_left() for layer in self._layers)

    def __call__(self, kwargs: dict[str, Any]) -> Any:
        """Run it."""
        for name, static in self._inputs.items():
            static.copy_(kwargs[name])
        self._replay()
        for layer in self._layers:
            layer.advance()
        return type(self._output)(self._output | {"last_hidden_state": self._output.last_hidden_state.clone()})


class GraphedDecoder:
    """Takes the place of a decoder's forward: prompts and what cannot be recorded run as ever, decode steps replay."""

    def __init__(self, decoder: nn.Module, attachment: Any):
        self._decoder, self._attachment = decoder, attachment
        self._before = decoder.__dict__.get("forward")
        self._forward = decoder.forward
        self._step: RecordedStep | None = None
        decoder.forward = self  # type: ignore[method-assign, assignment]

    def close(self) -> None:
        """Restore the decoder."""
        if self._before is None:
            self._decoder.__dict__.pop("forward", None)
        else:
            self._decoder.forward = self._before  # type: ignore[method-assign]
        self._step = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        cache = self._attachment.decoding()
        if cache is None:
            self._step = None
            return self._forward(*args, **kwargs)
        given = _fixed(cache, kwargs)
        more = self._more_than_states(kwargs)
        if self._step is not None and not more and self._step.fits(cache, given):
            output = self._step(given)
            self._attachment.note_replayed()
            return output
        self._step = None  # its storage may go
        for layer in cache.layers:
            layer.chunk = ROOM
        output = self._forward(*args, **kwargs)
        if not args and not more and all(layer.room_left() for layer in cache.layers):
            self._step = RecordedStep(self._forward, cache, _fixed(cache, kwargs))
            self._attachment.note_replayed()
        return output

    def _more_than_states(self, kwargs: dict[str, Any]) -> bool:
        """Whether the caller, or the configuration, asks for outputs that every replay would overwrite."""
        config = self._decoder.config
        names = ("output_hidden_states", "output_attentions")
        asked = (kwargs.get(name) for name in names)
        return any(getattr(config, n, False) if a is None else a for n, a in zip(names, asked))


def _fixed(cache: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments whose shapes do not change from step to step."""
    given = {name: value for name, value in kwargs.items() if name not in MADE_ANEW}
    if given.get("position_ids") is None:
        device = next(value.device for value in given.values() if isinstance(value, Tensor))
        given["position_ids"] = torch.full((1, 1), cache.get_seq_length(), device=device)
    return given


def _places(cache: Any) -> list[int]:
    """Where the layers are stored: beams move them."""
    return [place for layer in cache.layers for place in (layer.keys.data_ptr(), layer.values.data_ptr())]


def _shapes(kwargs: dict[str, Any]) -> dict[str, Any]:
    plain = (bool, int, float, str, type(None))
    return {
        name: value.shape if isinstance(value, Tensor) else value if isinstance(value, plain) else type(value)
        for name, value in kwargs.items()
    }


def check(model: Any, decode: str) -> None:
    """Refuse what cannot be recorded.

    Raises:
        UnsupportedError: the model is not on one CUDA device, or entries leave while decoding.
    """
    devices = {parameter.device for parameter in model.get_decoder().parameters()}
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        names = ", ".join(sorted(map(str, devices)))
        raise UnsupportedError(f"graph=True needs the model on one CUDA device; it is on {names}")
    if decode == "evict":
        raise UnsupportedError("graph=True works with KV_DECODE=append: entries that leave change a step's shapes")


def record(step: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
    """Record what ``step`` launches; returns its output, which every replay overwrites, and the replay."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()  # compiles kernels and makes workspaces
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = step()
    return output, graph.replay

"""What a method may ask the prefill for. Each statistic reduces attention rows of one layer to O(N) numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from .attention import LayerView
from .errors import UnsupportedError
from .prompt import Prompt


class Statistic(Protocol):
    """Something measured once per layer and sample while the prompt is prefilled; hashable, so methods share it."""

    @property
    def name(self) -> str:
        """What ``python -m kv_caches list`` calls it."""
        ...

    def collect(self, layer: LayerView) -> Any:
        """Measure one layer. Must not keep references to the layer's keys, queries or values."""
        ...


@dataclass(frozen=True)
class ColumnSums:
    """Attention every key receives, summed over all N query rows: (H, N) float32, per query head."""

    name: str = "column sums"

    def collect(self, layer: LayerView) -> Tensor:
        total = torch.zeros(layer.heads, layer.length, device=layer.keys.device)
        for heads, _, rows in layer.tiles(torch.arange(layer.length)):
            total[heads, : rows.shape[-1]] += rows.sum(1)
        return total


@dataclass(frozen=True)
class LastRow:
    """Attention row of the last prompt token: (H, N) float32."""

    name: str = "last row"

    def collect(self, layer: LayerView) -> Tensor:
        return layer.rows(torch.tensor([layer.length - 1]))[:, 0]


@dataclass(frozen=True)
class WindowRows:
    """Attention rows of the last prompt tokens, mean over each KV head's query heads.

    (G, w, N) float32 with w = min(size, N): a method may use fewer rows, the last ones.
    """

    size: int = 64
    name: str = "window rows"

    def collect(self, layer: LayerView) -> Tensor:
        rows = layer.rows(torch.arange(max(0, layer.length - self.size), layer.length))
        return rows.unflatten(0, (layer.kv_heads, -1)).mean(1)


@dataclass(frozen=True)
class Received:
    """Head-mean attention every key receives from the ``role`` rows ("text" or "vision"): (N,) float32."""

    role: str

    @property
    def name(self) -> str:
        """As listed."""
        return f"{self.role} row sums"

    def collect(self, layer: LayerView) -> Tensor:
        total = torch.zeros(layer.length, device=layer.keys.device)
        index = layer.prompt.vision if self.role == "vision" else layer.prompt.text
        if index.numel():
            for _, means in layer.head_means(index):
                total[: means.shape[-1]] += means.sum(0)
        return total


class Grounding(NamedTuple):
    """Head-mean attention paid by a group of text rows R, reduced to the key axis.

    Attributes:
        received: (N,) sum over R of the head-mean attention each key gets.
        weighted: (N,) the same sum with each row i in R weighted by its dominance
            (the mean attention it gets from the rows of R that can see it).
        weight: () sum of the weights.
    """

    received: Tensor
    weighted: Tensor
    weight: Tensor


@dataclass(frozen=True)
class TextGrounding:
    """Text rows only: what text looks at (TV and TT blocks of the head-mean attention map). See :class:`Grounding`.

    Attributes:
        after_block: False takes every text token as a row (the paper); True takes the tokens behind
            the released code's vision block, which are text for one contiguous image only.
    """

    after_block: bool = False
    name: str = "text rows"

    def rows(self, prompt: Prompt) -> Tensor:
        """Positions of the text rows, ascending."""
        if not self.after_block:
            return prompt.text
        return torch.arange(prompt.official_block[1], prompt.length)

    def collect(self, layer: LayerView) -> Grounding | None:
        if self.after_block and not layer.prompt.vision.numel():
            return None
        index = self.rows(layer.prompt)
        received = torch.zeros(layer.length, device=layer.keys.device)
        weighted = torch.zeros_like(received)
        if not index.numel():
            return Grounding(received, weighted, received.sum())
        means = received[None]
        for _, means in layer.head_means(index):
            received[: means.shape[-1]] += means.sum(0)
        seen_by = torch.arange(index.numel(), 0, -1, device=received.device)
        weights = received[index.to(received.device)] / seen_by  # omega: mean over the rows of R that can see row a
        one_block = means.shape[0] == index.numel()
        done = 0
        for _, mean in [(index, means)] if one_block else layer.head_means(index):
            weighted[: mean.shape[-1]] += weights[done : done + mean.shape[0]] @ mean
            done += mean.shape[0]
        return Grounding(received, weighted, weights.sum())


class PrefillStats:
    """Everything collected for one sample: the prompt's roles and one dict of statistics per layer.

    Attributes:
        deepstack: first layers whose outputs the model adds vision features to (Qwen3-VL), else 0.
    """

    def __init__(self, prompt: Prompt, n_layers: int, deepstack: int = 0):
        self.prompt, self.deepstack = prompt, deepstack
        self.heads = self.kv_heads = 0  # H and G, of the last layer measured
        self._layers: list[dict[Statistic, Any]] = [{} for _ in range(n_layers)]
        self._finite: set[tuple[Statistic, int]] = set()

    @property
    def n_layers(self) -> int:
        """L, the number of decoder layers."""
        return len(self._layers)

    def collect(self, index: int, layer: LayerView, needs: frozenset[Statistic]) -> None:
        """Measure ``needs`` on one layer."""
        self.heads, self.kv_heads = layer.heads, layer.kv_heads
        self._layers[index] = {statistic: statistic.collect(layer) for statistic in needs}

    def get(self, statistic: Statistic, layer: int) -> Any:
        """The statistic of one layer; KeyError when the method did not list it in ``needs``.

        Raises:
            UnsupportedError: it is not finite, so nothing can be ranked by it.
        """
        value = self._layers[layer][statistic]
        if (statistic, layer) not in self._finite:
            sums = [tensor.sum().float() for tensor in _tensors(value)]  # NaN and infinity stay visible in a sum
            if sums and not bool(torch.stack(sums).isfinite().all()):
                raise UnsupportedError(not_finite(layer, statistic.name))
            self._finite.add((statistic, layer))
        return value


def not_finite(layer: int, what: str) -> str:
    """Why a sample fails whose numbers are none."""
    return (
        f"layer {layer}: {what}: not finite (NaN or infinite), so nothing can be ranked; float16 overflows in some "
        "models: try bfloat16 or float32"
    )


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)

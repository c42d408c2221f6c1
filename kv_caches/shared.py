"""One prefill, many configurations: every sample's prompt runs once, then each configuration decodes from a fork."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from . import kernels
from .config import KVConfig
from .engine import Attachment
from .errors import UnsupportedError
from .method import Method
from .rows import Row, evicted, records
from .statistics import PrefillStats, Statistic

PADDING = 1 << 17  # bytes per row and layer: reading them costs about what a call of the kernel for each row does


def sharing(configs: Sequence[KVConfig]) -> dict[KVConfig, Method]:
    """The methods of configurations that one prefill can serve.

    Raises:
        UnsupportedError: a method that changes the prefill and so cannot share one.
    """
    methods = {config: config.build() for config in configs}
    for config, method in methods.items():
        if not method.shares_prefill:
            raise UnsupportedError(f"{config.method} changes the prefill and cannot share one; run it alone")
    return methods


class SharedPrefill(Attachment):
    """A model whose prefill keeps the whole prompt cache and measures what all configurations need.

    The first token comes from the full prefill, so it is the same for every configuration::

        with SharedPrefill(model, configs) as shared:
            first = model.generate(**inputs, max_new_tokens=1)
            for rows in batches_of([(sample, config), ...]):
                cache, proofs = shared.fork(rows)
                model.generate(**shared.continuation(first, mask, rows), cache=cache, max_new_tokens=limit - 1)

    Raises:
        UnsupportedError: a method that changes the prefill and so cannot share one.
    """

    def __init__(self, model: Any, configs: Sequence[KVConfig]):
        self.methods = sharing(configs)
        self._layers: list[Any] = []
        self._samples: list[PrefillStats] = []
        model_type = next((config.model_type for config in configs), None)
        super().__init__(model, KVConfig(model_type=model_type))

    def _statistics(self) -> frozenset[Statistic]:
        return frozenset().union(*(method.needs for method in self.methods.values()))

    def _prefilled(self, cache: Any, stats: list[PrefillStats]) -> None:
        self._layers, self._samples, self._rows = list(cache.layers), stats, []

    def release(self) -> None:
        """Let go of the prompt's full cache."""
        self._layers, self._samples = [], []

    def prompt_bytes(self) -> int:
        """Bytes of one sample's full prompt cache, padding of the batch included."""
        return sum(layer.keys[0].nbytes + layer.values[0].nbytes for layer in self._layers)

    def token_bytes(self) -> int:
        """Bytes of one token in all layers of a cache."""
        return sum(layer.keys[0, :, 0].nbytes + layer.values[0, :, 0].nbytes for layer in self._layers)

    def detach(self) -> None:
        """Restore the model. Safe to call twice."""
        self.release()
        super().detach()

    @torch.no_grad()
    def fork(self, rows: Sequence[tuple[int, KVConfig]]) -> tuple[DynamicCache, list[dict[str, Any]]]:
        """Caches of (sample, configuration) pairs as one ragged batch, and the proof of eviction of each.

        The prompt's cache stays whole. The next ``generate`` call must continue exactly these rows.
        """
        chosen = [Row.of(sample, c, self.methods[c], self._samples[sample]) for sample, c in rows]
        cache = DynamicCache()
        layers = [evicted(layer, index, chosen, PADDING) for index, layer in enumerate(self._layers)]
        kernels.adopt(cache, layers)
        return cache, records(cache, chosen, self.record_kept)

    @staticmethod
    def continuation(sequences: Any, attention_mask: Tensor, rows: Sequence[tuple[int, KVConfig]]) -> dict[str, Tensor]:
        """Inputs of the ``generate`` call that continues forked rows.

        Args:
            sequences: (B, N + 1) prompt and first token, or the output of ``generate`` they are in.
            attention_mask: (B, N) of the prompt.
        """
        sequences = getattr(sequences, "sequences", sequences)  # return_dict_in_generate
        index = torch.tensor([sample for sample, _ in rows], device=sequences.device)
        mask = torch.cat([attention_mask, attention_mask.new_ones(attention_mask.shape[0], 1)], dim=1)
        return {"input_ids": sequences[index], "attention_mask": mask[index]}

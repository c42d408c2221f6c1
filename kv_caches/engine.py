"""attach(): evict from a stock transformers model's KV cache between its prefill and its first decode step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from . import graphs, kernels
from .attention import LayerView
from .cache import EvictingLayer
from .calls import MultimodalPositions, Names
from .config import KVConfig
from .errors import UnsupportedError
from .models import check_model_type
from .prompt import split_batch, vision_token_ids
from .pruned_prefill import attend_among, survivors
from .rows import Row, evict_step, note_step, records, replaced
from .statistics import PrefillStats, Statistic


def attach(model: Any, config: KVConfig, *, graph: bool = False) -> Attachment:
    """Make ``model`` evict as ``config`` says, in ``generate`` and in plain forward calls with a cache.

    Use it as a context manager, or keep the result and call ``detach()``. The model's kernel, weights and code are not
    touched; detaching restores it exactly.

    Args:
        model: a transformers model; of an unmerged PEFT model, the model its adapters are in is taken.
        graph: record the decode step as a CUDA graph and replay it. Worth it for long answers of one prompt: every
            prompt is recorded anew.

    Raises:
        ConfigError: ``config.model_type`` contradicts the model.
        UnsupportedError: a model entries cannot be evicted from, or one that is attached already.
    """
    return Attachment(model, config, graph)


class Attachment:
    """A model with eviction switched on. See :func:`attach`.

    Attributes:
        kept: per sample of the last prefill, ``[layer][set]`` ascending true positions that stayed.
        record_kept: set it to True to have the positions that stayed in the records too (``kept``).
    """

    def __init__(self, model: Any, config: KVConfig, graph: bool = False):
        model = kernels.transformers_model(model)
        check_model_type(config.model_type, model.config)
        self._graph: graphs.GraphedDecoder | None = None
        if graph:
            graphs.check(model, config.decode)
        self.config = config
        self.method = config.build()
        self._model = model
        self.record_kept = False
        self._needs = self._statistics()
        self.kept: list[list[list[Tensor]]] = []
        self._records: list[dict[str, Any]] = []
        self._cache: Any = None
        self._attended = 0  # attention calls of the present forward call
        self._stats: list[PrefillStats] | None = None
        self._rows: list[Row] = []  # of a prompt whose layers evict one by one
        self._inputs: dict[Any, tuple[Any, Any]] = {}
        self._vision_ids = vision_token_ids(model.config, config.model_type)
        self._names = Names(model)
        self._modules = kernels.attention_modules(model)
        self._inv_freq = kernels.inverse_frequencies(model)
        self._deepstack = kernels.deepstack_layers(model)
        if any(module in kernels.HANDLERS for module in self._modules):
            raise UnsupportedError(f"{type(model).__name__} is attached already; detach it first")
        self._install(model)
        if graph:
            self._graph = graphs.GraphedDecoder(model.get_decoder(), self)

    def _install(self, model: Any) -> None:
        configs = {id(c): c for c in [self._modules[0].config, model.get_decoder().config]}
        self._configs = [(c, c._attn_implementation) for c in configs.values()]
        names = {base: kernels.register(base) for _, base in self._configs}
        for module in self._modules:
            kernels.HANDLERS[module] = self
        for config, base in self._configs:
            config._attn_implementation = names[base]
        self._positions = MultimodalPositions(model)
        self._hooks = [
            model.register_forward_pre_hook(self._before, with_kwargs=True, prepend=True),
            model.register_forward_hook(self._after, always_call=True),
        ]
        if any(getattr(statistic, "module_inputs", False) for statistic in self._needs):
            self._hooks += [m.register_forward_pre_hook(self._capture, with_kwargs=True) for m in self._modules]

    def _statistics(self) -> frozenset[Statistic]:
        """What the prefill measures."""
        return self.method.needs

    def detach(self) -> None:
        """Restore the model. Safe to call twice."""
        for hook in self._hooks:
            hook.remove()
        self._positions.close()
        for config, base in self._configs:
            config._attn_implementation = base
        for module in self._modules:
            kernels.HANDLERS.pop(module, None)
        if self._graph is not None:
            self._graph.close()
        self._hooks, self._configs = [], []
        self._cache = self._stats = None
        self._rows = []

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, *exc: object) -> None:
        self.detach()

    def decoding(self) -> Any:
        """The cache of the present forward call if it is a decode step, else None."""
        return self._cache if self._stats is None else None

    def note_replayed(self) -> None:
        """Every layer attended in the present forward call, some of them in a recorded step."""
        self._attended = len(self._modules)

    def take_records(self) -> list[dict[str, Any]]:
        """Records of every sample prefilled since the last call, in order, and forget them."""
        records, self._records = self._records, []
        return records

    def _before(self, model: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Start of a forward call: a prompt (empty cache) or one decode step."""
        self._cache, self._stats, self._rows, self._inputs, self._attended = None, None, [], {}, 0
        given = self._names.named(args, kwargs)
        if given.get("use_cache") is False:
            raise UnsupportedError(
                "use_cache=False (an argument or the generation config) leaves no cache to evict from: set it to True, "
                "or detach the model for such a call"
            )
        cache = given.setdefault(self._names.cache, DynamicCache())
        ids, mask = given.get("input_ids"), given.get("attention_mask")
        if mask is not None and not (isinstance(mask, Tensor) and mask.dim() == 2):
            kind = f"{mask.dim()}-dimensional" if isinstance(mask, Tensor) else type(mask).__name__
            raise UnsupportedError(f"attention_mask must be a tensor of (batch, tokens), not {kind}")
        if cache.get_seq_length() == 0:
            self._begin_prompt(cache, ids, mask)
        elif not all(isinstance(layer, EvictingLayer) for layer in cache.layers):
            raise UnsupportedError("this cache was filled while the model was not attached; start from an empty one")
        elif (new := given.get("inputs_embeds") if ids is None else ids) is not None and new.shape[1] != 1:
            raise UnsupportedError(
                f"{new.shape[1]} tokens after the prompt in one call: only one per step is supported "
                "(no chunked prefill, assisted decoding or second turn on an evicted cache)"
            )
        else:
            self._positions.go_on(cache, given)
        self._cache = cache
        return (), given

    def _begin_prompt(self, cache: Any, ids: Tensor | None, mask: Tensor | None) -> None:
        kernels.refuse_compiled(self._model)
        if ids is None:
            raise UnsupportedError("input_ids are needed to tell vision from text; inputs_embeds alone do not say")
        prompts = split_batch(ids, mask, self._vision_ids)
        offsets = torch.tensor([ids.shape[1] - prompt.length for prompt in prompts])
        kernels.adopt(cache, [EvictingLayer(offsets) for _ in self._modules])
        self._positions.begin(cache, ids.shape[1])
        self._stats = [PrefillStats(prompt, len(self._modules), self._deepstack) for prompt in prompts]
        if self.method.evicts_in_layer:
            self._rows = [Row.begin(i, self.config, self.method, stats) for i, stats in enumerate(self._stats)]

    def _capture(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        if self._stats is not None:
            hidden = kwargs.get("hidden_states", args[0] if args else None)
            self._inputs[module.layer_idx] = (hidden, kernels.rotary(module, kwargs.get("position_embeddings")))

    def attention(self, call: Callable, module: Any, query, key, value, mask, kwargs: dict[str, Any]):
        """One layer's attention: the model's own kernel, then statistics (prompt) or the decode rule (one token)."""
        if self._cache is None:
            raise UnsupportedError("the attached model must be called itself, not one of its parts")
        self._attended += 1
        if self._graph is not None and kwargs.get("sliding_window") is not None:
            raise UnsupportedError("graph=True: layers with a sliding window change a step's shapes; leave it out")
        if self._stats is not None:
            seen = survivors(self._rows, module.layer_idx, key.shape[2]) if self.method.prunes_prefill else None
            attend = call if seen is None else partial(attend_among, call, seen)
            output = attend(query, key, value, mask, **kwargs)
            self._collect(module, query, key, value, kwargs)
            self._evict_early(module.layer_idx)
            return output
        layer = self._cache.layers[module.layer_idx]
        output = layer.attend(call, module, query, kwargs)
        if layer.rules is not None:
            evict_step(self._cache.layers, module.layer_idx, query, module.scaling, kwargs.get("sliding_window"))
        return output

    @torch.no_grad()
    def _collect(self, module: Any, query: Tensor, key: Tensor, value: Tensor, kwargs: dict[str, Any]) -> None:
        index, width = module.layer_idx, key.shape[2]
        hidden, rotary = self._inputs.pop(index, (None, None))
        for row, stats in enumerate(self._stats or []):
            real = slice(width - stats.prompt.length, width)
            view = LayerView(
                query[row, :, real],
                key[row, :, real],
                value[row, :, real],
                stats.prompt,
                kwargs.get("scaling") or query.shape[-1] ** -0.5,
                kwargs.get("sliding_window"),
                module,
                None if hidden is None else hidden[row, real],
                None if rotary is None else tuple(r[row if r.shape[0] > 1 else 0, real] for r in rotary),
                self._inv_freq,
            )
            stats.collect(index, view, self._needs)

    @torch.no_grad()
    def _after(self, model: nn.Module, args: tuple, output: Any) -> None:
        """End of a forward call; ``output`` is None when it raised."""
        cache, stats = self._cache, self._stats
        self._cache = self._stats = None
        if output is None:
            return
        if self._attended != len(self._modules):
            raise UnsupportedError(
                "the attention implementation was changed while attached; detach, change it, attach again"
            )
        if stats is None:
            note_step(cache)
        else:
            self._prefilled(cache, stats)

    def _prefilled(self, cache: Any, stats: list[PrefillStats]) -> None:
        """End of a prompt: evict where that was not done layer by layer; never more than one layer exists twice."""
        rows, self._rows = self._rows, []
        if not rows:
            rows = [Row.of(i, self.config, self.method, sample) for i, sample in enumerate(stats)]
            for index, layer in enumerate(cache.layers):
                cache.layers[index] = replaced(layer, index, rows)
        self._records += records(cache, rows, self.record_kept)
        self.kept = [row.selection.kept for row in rows]

    @torch.no_grad()
    def _evict_early(self, index: int) -> None:
        """Right after a layer ran, if the method can tell what stays."""
        for row in self._rows:
            row.choose(index)
        if self._rows:
            self._cache.layers[index] = replaced(self._cache.layers[index], index, self._rows)

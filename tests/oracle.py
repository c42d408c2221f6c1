"""What eviction must amount to: a full cache in which the evicted entries are hidden from every decode step.

The oracle is stock `generate` on a stock full cache. Only the attention function is its own: eager, in plain
sight, and able to hide entries per layer and per KV head. Nothing is gathered and no position is touched, so
it shares no code and no idea with the engine it judges.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import (
    AttentionInterface,
    DynamicCache,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
)
from transformers.masking_utils import AttentionMaskInterface, eager_mask

NAME = "tests_masked_oracle"
NEVER = 1 << 30
Inputs = dict[str, Tensor]
KeptOfBatch = Sequence[Sequence[Sequence[Sequence[int]]]]  # [sample][layer][set][true prompt positions]


@dataclass
class Oracle:
    """One run: what to hide, what to substitute, and what was seen.

    Attributes:
        padding: Padding tokens at the left of each row.
        length: Padded prompt length.
        hidden_from: Per layer, (B, G, slots): the first decode step, counted from 1, that must not see it; 0 hides it
            from the prefill too.
        merged: Per layer, keys and values that replace those of the prompt from the first decode step on.
        on_step: Called in each layer of each decode step with (oracle, layer, step, weights (B, H, slots)).
        record: Keep the statistics of the prefill in `seen`.
        seen: Per layer, weights (B, H, N, N), keys and values (B, G, N, d) of the prefill.
    """

    padding: list[int]
    length: int
    hidden_from: list[Tensor] | None = None
    merged: Sequence[tuple[Tensor, Tensor]] | None = None
    on_step: Callable[[Oracle, int, int, Tensor], None] | None = None
    record: bool = False
    seen: dict[int, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)

    def hide(self, layer: int, sample: int, positions: Sequence[int], step: int, head: int | None = None) -> None:
        """Hide true positions of one sample from a decode step on, in one KV head or in all of them."""
        slots = [position + self.padding[sample] for position in positions]
        heads = slice(None) if head is None else head
        self.hidden_from[layer][sample, heads, slots] = step


_running: list[Oracle] = []


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: object,
) -> tuple[Tensor, Tensor]:
    """Eager attention in which the running oracle hides entries from the decode steps."""
    oracle, layer = _running[-1], module.layer_idx
    step = key.shape[2] - oracle.length
    if step > 0 and oracle.merged is not None:
        key, value = (
            torch.cat([new.to(old), old[:, :, oracle.length :]], dim=2)
            for new, old in zip(oracle.merged[layer], (key, value), strict=True)
        )
    group = query.shape[1] // key.shape[1]
    logits = query @ key.repeat_interleave(group, 1).transpose(2, 3) * (scaling or query.shape[-1] ** -0.5)
    if attention_mask is not None:
        logits = logits + attention_mask[..., : key.shape[2]]
    if oracle.hidden_from is not None:
        hidden = oracle.hidden_from[layer][:, :, : key.shape[2]] <= step
        heads = hidden.repeat_interleave(group, 1) if hidden.shape[1] > 1 else hidden
        # finite: a row of the prefill that sees nothing at all must not spread NaN
        logits = logits.masked_fill(heads[:, :, None], torch.finfo(logits.dtype).min)
    weights = logits.softmax(dim=-1)
    if step == 0 and oracle.record:
        oracle.seen[layer] = weights, key, value
    if step > 0 and oracle.on_step is not None:
        oracle.on_step(oracle, layer, step, weights[:, :, 0])
    return (weights @ value.repeat_interleave(group, 1)).transpose(1, 2).contiguous(), weights


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, eager_mask)


class ForcedTokens(LogitsProcessor):
    """Makes `generate` choose the given tokens, one column a step."""

    def __init__(self, tokens: Tensor, prompt_length: int) -> None:
        self.tokens, self.prompt_length = tokens, prompt_length

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Rule out all tokens but the next given one."""
        chosen = self.tokens[:, input_ids.shape[1] - self.prompt_length, None]
        return torch.full_like(scores, -torch.inf).scatter(1, chosen, 0.0)


def forced_logits(model: PreTrainedModel, inputs: Inputs, tokens: Tensor, **options: object) -> Tensor:
    """Logits of real `generate` made to answer with these tokens.

    Args:
        model: As it is, stock or with something attached.
        inputs: Inputs of `generate`.
        tokens: Answer tokens (B, T).
        options: More arguments of `generate`.

    Returns:
        (T, B, vocabulary): row 0 comes from the prefill, row t from the decode step that was fed token t - 1.
    """
    forced = ForcedTokens(tokens, inputs["input_ids"].shape[1])
    output = model.generate(
        **inputs,
        do_sample=False,
        max_new_tokens=tokens.shape[1],
        logits_processor=LogitsProcessorList([forced]),
        output_logits=True,
        return_dict_in_generate=True,
        **options,
    )
    assert torch.equal(output.sequences[:, -tokens.shape[1] :], tokens)
    return torch.stack(output.logits)


def answer_tokens(rows: int, steps: int, seed: int = 11) -> Tensor:
    """Random text tokens (rows, steps) to force, each row its own and independent of how many there are."""
    draw = [torch.Generator().manual_seed(seed + row) for row in range(rows)]
    return torch.stack([torch.randint(5, 100, (steps,), generator=random) for random in draw])


@contextmanager
def watching(model: PreTrainedModel, oracle: Oracle) -> Iterator[Oracle]:
    """Run the text decoder with the oracle's attention, and put its own back afterwards."""
    before = model.config.get_text_config()._attn_implementation
    model.set_attn_implementation({"text_config": NAME})
    _running.append(oracle)
    try:
        yield oracle
    finally:
        _running.pop()
        model.set_attn_implementation({"text_config": before})


def oracle_for(inputs: Inputs, **fields: object) -> Oracle:
    """An oracle that knows the padding of these inputs."""
    mask = inputs["attention_mask"]
    return Oracle([int(row.argmax()) for row in mask], mask.shape[1], **fields)


def masked_full_cache_logits(
    model: PreTrainedModel,
    inputs: Inputs,
    tokens: Tensor,
    kept: KeptOfBatch,
    merged: Sequence[tuple[Tensor, Tensor]] | None = None,
    on_step: Callable[[Oracle, int, int, Tensor], None] | None = None,
    evicted_at_step: Sequence[tuple[int, int, int, int | None, Sequence[int]]] = (),
    in_prefill: bool = False,
) -> Tensor:
    """Logits of a full cache in which everything but the kept prompt positions is hidden after the prefill.

    Args:
        model: A stock model.
        inputs: Inputs of `generate`, padded on the left where lengths differ.
        tokens: Answer tokens to force (B, T).
        kept: Per sample, layer and set (one for all KV heads, or one for each) the true positions that stay.
        merged: Per layer, prompt keys and values (B, G, N, d) in padded slots that replace the model's own.
        on_step: Called as `Oracle.on_step`; may call `Oracle.hide` for the steps to come.
        evicted_at_step: (step, sample, layer, KV head or None for all, true positions), hidden from then on.
        in_prefill: Hide it from the rows of the prefill too.

    Returns:
        (T, B, vocabulary), row 0 from the prefill, as `forced_logits`.
    """
    oracle = oracle_for(inputs, merged=merged, on_step=on_step)
    heads = model.config.get_text_config().num_key_value_heads
    oracle.hidden_from = hidden_slots(kept, oracle, heads, tokens.shape[1], 0 if in_prefill else 1)
    for step, sample, layer, head, positions in evicted_at_step:
        oracle.hide(layer, sample, positions, step, head)
    with watching(model, oracle):
        return forced_logits(model, inputs, tokens, **{cache_argument(model): DynamicCache()})


def cache_argument(model: PreTrainedModel) -> str:
    """What this release of transformers calls the cache."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def hidden_slots(kept: KeptOfBatch, oracle: Oracle, kv_heads: int, steps: int, since: int = 1) -> list[Tensor]:
    """Per layer, (B, G, slots): the step an entry is hidden from, else never."""
    layers = []
    for layer in range(len(kept[0])):
        hidden = torch.full((len(kept), kv_heads, oracle.length + steps), NEVER)
        hidden[..., : oracle.length] = since
        for row, of_sample in enumerate(kept):
            sets = list(of_sample[layer]) * (kv_heads if len(of_sample[layer]) == 1 else 1)
            for head, positions in enumerate(sets):
                slots = torch.as_tensor(list(positions), dtype=torch.long) + oracle.padding[row]
                hidden[row, head, slots] = NEVER
        layers.append(hidden)
    return layers


@dataclass(frozen=True)
class Prefill:
    """What one sample's prompt looked like from inside, padding removed, in float64.

    Attributes:
        attention: (L, H, N, N).
        keys: After the rotation, (L, G, N, d).
        values: (L, G, N, d).
        queries: After the query norm, before the rotation, (L, H, N, d).
        next_position: Position id of the first answer token.
    """

    attention: Tensor
    keys: Tensor
    values: Tensor
    queries: Tensor
    next_position: int


def prefill_of(model: PreTrainedModel, inputs: Inputs) -> list[Prefill]:
    """Full attention matrices, keys, values and queries of every sample of a batch."""
    oracle = oracle_for(inputs, record=True)
    with watching(model, oracle), bare_queries(model) as queries:
        forced_logits(model, inputs, answer_tokens(len(oracle.padding), 1))
    layers = [oracle.seen[layer] for layer in sorted(oracle.seen)]
    weights, keys, values = (torch.stack(parts).double() for parts in zip(*layers, strict=True))
    bare = torch.stack([q.unflatten(-1, (-1, keys.shape[-1])).transpose(1, 2) for q in queries]).double()
    return [
        Prefill(
            *(part[:, row, :, pad:] for part in (weights[..., pad:], keys, values, bare)),
            oracle.length - pad + position_shift(model, row),
        )
        for row, pad in enumerate(oracle.padding)
    ]


@contextmanager
def bare_queries(model: PreTrainedModel) -> Iterator[list[Tensor]]:
    """Collect the queries before the rotation, one tensor (B, N, H * d) per layer."""
    queries: list[Tensor] = []
    hooks = []
    for layer in model.get_decoder().layers:
        source = getattr(layer.self_attn, "q_norm", layer.self_attn.q_proj)
        hooks.append(source.register_forward_hook(lambda _, __, out: queries.append(out.reshape(*out.shape[:2], -1))))
    try:
        yield queries
    finally:
        for hook in hooks:
            hook.remove()


def position_shift(model: PreTrainedModel, row: int) -> int:
    """How far M-RoPE positions of the answer are from the number of tokens before it."""
    deltas = getattr(model.model, "rope_deltas", None)
    return 0 if deltas is None else int(deltas[row])

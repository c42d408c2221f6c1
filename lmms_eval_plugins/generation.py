"""Every setting that transformers' `generate` knows, and what becomes of it here.

A setting comes from the checkpoint's generation_config.json or from a task's generation arguments (`--gen_kwargs`).
One that would let a sweep answer otherwise than a run by hand, or that hangs on the clock or on the batch, is
overridden and named: an answer is decided by what the model sees and by what the fingerprint covers, by nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from transformers import GenerationConfig

from kv_caches import ConfigError
from kv_caches.errors import nearest
from kv_caches.values import text

OURS = frozenset({"max_new_tokens", "do_sample", "num_beams", "eos_token_id", "pad_token_id", "use_cache"})
"""Decided by every run itself, from the task and the model."""

TOKENS = frozenset(
    {"repetition_penalty", "no_repeat_ngram_size", "bad_words_ids", "suppress_tokens", "sequence_bias"}
    | {"renormalize_logits"}
)
"""Honoured, in a sweep too: they see the tokens so far and nothing else."""

SAMPLING = frozenset({"temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"})
"""Honoured where answers are sampled, which needs a temperature above 0 in the task's arguments."""

BEAMS = frozenset({"length_penalty", "early_stopping"})
"""Honoured where `num_beams` is above 1."""

OWN_RUN: Mapping[str, tuple[Any, ...]] = {
    "min_new_tokens": (None, 0),
    "exponential_decay_length_penalty": (None,),
    "begin_suppress_tokens": (None,),
}
"""Honoured, with the values that ask for nothing. They count from where `generate` was called, which a fork calls one
token later: what has one of them shares no prefill."""

OVERRIDDEN: Mapping[str, tuple[Any, ...]] = {
    "max_time": (None,),
    "min_length": (None, 0),
    "stop_strings": (None,),
    "forced_eos_token_id": (None,),
    "remove_invalid_values": (None, False),
    "guidance_scale": (None, 1),
    "watermarking_config": (None,),
    "token_healing": (None, False),
    "num_return_sequences": (None, 1),
    "cache_implementation": (None, "dynamic"),
    "cache_config": (None,),
    "prefill_chunk_size": (None,),
    "penalty_alpha": (None, 0),
    "dola_layers": (None,),
    "num_beam_groups": (None, 1),
    "diversity_penalty": (None, 0),
    "constraints": (None,),
    "force_words_ids": (None,),
    "prompt_lookup_num_tokens": (None,),
    "use_mtp": (None, False),
}
"""Put aside, and named if they ask for something: with the values that do not."""

NO_EFFECT = frozenset(
    # on a model without an encoder, whose prompt is never one token
    {"encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "decoder_start_token_id", "forced_bos_token_id"}
    | {"bos_token_id"}
    # overruled by max_new_tokens, or about the form of what `generate` returns, which is fixed
    | {"max_length", "return_dict_in_generate", "output_attentions", "output_hidden_states", "output_logits"}
    | {"output_scores", "low_memory"}
    # of caches, drafts and compilation that are not used
    | {"max_cache_len", "compile_config", "disable_compile", "continuous_batching_config", "is_assistant"}
    | {"assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight", "assistant_lookbehind"}
    | {"num_assistant_tokens", "num_assistant_tokens_schedule", "max_matching_ngram_size", "target_lookbehind"}
    | {"speculation_type"}
    # where the file comes from
    | {"_from_model_config", "transformers_version"}
)
"""Put aside without a word: they decide no answer."""

_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
HONOURED = TOKENS | SAMPLING | BEAMS | OWN_RUN.keys()
READ_OF_A_TASK = HONOURED | {"max_new_tokens", "do_sample", "num_beams", "until"}
KNOWN = OURS | HONOURED | OVERRIDDEN.keys() | NO_EFFECT


def cleaned(given: GenerationConfig) -> tuple[GenerationConfig, list[str]]:
    """What of a checkpoint's generation config is honoured, and a line for each setting that is put aside."""
    values = vars(given)
    kept = {name: values[name] for name in (*HONOURED, *_IDS) if _allowed(name, values.get(name))}
    notes = [
        f"{name}={text(values[name])} in the checkpoint's generation config has no effect here"
        for name in sorted(values)
        if values[name] is not None and not name.startswith("_") and _asks_for_something(name, values[name])
    ]
    config = GenerationConfig()
    for name, value in kept.items():
        setattr(config, name, value)
    return config, notes


def _asks_for_something(name: str, value: Any) -> bool:
    return name not in KNOWN or value not in OVERRIDDEN.get(name, (value,)) or not _allowed(name, value)


def _allowed(name: str, value: Any) -> bool:
    return value is not None and (name not in _RULES or name in OURS or _RULES[name].allows(value))


_MOST = 10**9
_IN_A_FILE = ", which a task's YAML file can give,"


class _Rule(NamedTuple):
    allows: Callable[[Any], bool]
    words: str


def _number(least: float, most: float = _MOST, above: bool = False) -> Callable[[Any], bool]:
    def allows(value: Any) -> bool:
        real = isinstance(value, int | float) and not isinstance(value, bool) and -_MOST <= value <= _MOST
        return real and (least < value if above else least <= value) and value <= most

    return allows


def _whole(least: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST


def _list_of(each: Callable[[Any], bool], least: int = 0) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and len(value) >= least and all(map(each, value))


def _pair(first: Callable[[Any], bool], second: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and len(value) == 2 and first(value[0]) and second(value[1])


_SHARE = _Rule(_number(0, 1, above=True), "a number above 0 and up to 1")
_COUNT = _Rule(_whole(0), "a whole number from 0")
_RULES = {
    "temperature": _Rule(_number(0), "a number from 0"),
    "top_p": _Rule(_number(0, 1), "a number from 0 to 1"),
    "min_p": _Rule(_number(0, 1), "a number from 0 to 1"),
    "top_h": _SHARE,
    "typical_p": _SHARE,
    "epsilon_cutoff": _Rule(_number(0, 1), "a number from 0 to 1"),
    "eta_cutoff": _Rule(_number(0, 1), "a number from 0 to 1"),
    "top_k": _COUNT,
    "repetition_penalty": _Rule(_number(0, above=True), "a number above 0"),
    "no_repeat_ngram_size": _Rule(
        lambda value: _whole(0)(value) and value != 1,
        "0 or a whole number from 2 (1 forbids every token of the prompt)",
    ),
    "length_penalty": _Rule(_number(-_MOST), "a number"),
    "num_beams": _Rule(_whole(1), "a whole number from 1"),
    "max_new_tokens": _Rule(_whole(1), "a whole number from 1"),
    "min_new_tokens": _COUNT,
    "do_sample": _Rule(lambda value: isinstance(value, bool), "True or False"),
    "renormalize_logits": _Rule(lambda value: isinstance(value, bool), "True or False"),
    "early_stopping": _Rule(lambda value: isinstance(value, bool) or value == "never", "True, False or never"),
    "until": _Rule(
        lambda value: isinstance(value, str) or _list_of(lambda text: isinstance(text, str))(value),
        "a text or a list of texts",
    ),
    "suppress_tokens": _Rule(_list_of(_whole(0)), f"a list of token ids{_IN_A_FILE}"),
    "begin_suppress_tokens": _Rule(_list_of(_whole(0)), f"a list of token ids{_IN_A_FILE}"),
    "bad_words_ids": _Rule(_list_of(_list_of(_whole(0), 1), 1), f"a list of lists of token ids{_IN_A_FILE}"),
    "sequence_bias": _Rule(
        _list_of(_pair(_list_of(_whole(0), 1), _number(-_MOST)), 1),
        f"a list of pairs, token ids and a number{_IN_A_FILE}",
    ),
    "exponential_decay_length_penalty": _Rule(
        _pair(_whole(0), _number(0, above=True)), f"a first token and a factor{_IN_A_FILE}"
    ),
}
_NEUTRAL = {"top_p": (0, 1), "top_k": (0,), "num_beams": (1,), "length_penalty": (1,), "early_stopping": (False,)}


def check(gen_kwargs: Mapping[str, Any]) -> list[str]:
    """Checks a task's generation arguments; returns a line for each that has no effect.

    Raises:
        ConfigError: a value that is not allowed.
    """
    unused = frozenset() if samples(gen_kwargs) else SAMPLING - {"temperature"}  # stock tasks have odd values there
    for name, value in gen_kwargs.items():
        rule = None if name in unused else _RULES.get(name)
        if rule is not None and value is not None and not rule.allows(value):
            raise ConfigError(f"--gen_kwargs {name}={text(value)}: {rule.words} is needed")
    return list(_without_effect(gen_kwargs))


def samples(gen_kwargs: Mapping[str, Any]) -> bool:
    """Whether answers are drawn: as in lmms-eval, the temperature alone decides."""
    return bool(gen_kwargs.get("temperature"))


def _without_effect(given: Mapping[str, Any]) -> Iterator[str]:
    sampled, beams = samples(given), (given.get("num_beams") or 1) > 1
    for name, value in given.items():
        said = f"--gen_kwargs {name}={text(value)} has no effect"
        if value is None or value in _NEUTRAL.get(name, ()):
            continue
        if name not in READ_OF_A_TASK:
            yield f"{said} here.{nearest(name, sorted(READ_OF_A_TASK))}"
        elif name == "do_sample" and value != sampled:
            yield f"{said}: as in lmms-eval, answers are sampled if the temperature is above 0, and only then"
        elif name in SAMPLING and not sampled and name != "temperature":
            yield f"{said} at temperature 0"
        elif name in BEAMS and not beams:
            yield f"{said} without num_beams above 1"

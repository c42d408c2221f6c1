"""Settings of `generate`: every one is honoured, in a sweep as by hand, or is put aside and named."""

import itertools
import json
import shutil

import pytest
from transformers import GenerationConfig

from kv_caches import ConfigError
from lmms_eval_plugins import generation
from lmms_eval_plugins.errors import RunStopped

from . import grid, toy
from .checkpoints import IDS

SWEEP = "retention: [0.2]\nmethods: [full, tgv_kv, streaming_llm]\n"
DOCS = toy.documents()[:3]
A, B = IDS["A"], IDS["B"]


@pytest.fixture
def answered(checkpoint, environment, monkeypatch):
    """Answers of all configurations of a small sweep, by hand and together, which must be equal."""
    path, folders = environment.with_name("sweep.yaml"), itertools.count()
    path.write_text(SWEEP)

    def answers(folder=None, settings=None, tokens=6, batch=3, **gen_kwargs):
        found = []
        for together in (False, True):
            store = environment / str(next(folders))
            for method in ["tgv_kv"] if together else ["full", "tgv_kv", "streaming_llm"]:
                with monkeypatch.context() as patch:
                    patch.setenv("KV_CACHE_TYPE", method)
                    patch.setenv("PRUNE_RATIO", "0" if method == "full" else "0.8")
                    if together:
                        patch.setenv("KV_SWEEP", str(path))
                    model = grid.wrapper(folder or checkpoint("llava"), store, batch)
                for name, value in (settings or {}).items():
                    setattr(model.model.generation_config, name, value)
                grid.ask(model, DOCS, tokens, **gen_kwargs)
            records = toy.records(store)
            found.append({(r["eviction"]["method"], r["doc_id"]): (r["status"], r["answer"]) for r in records})
        assert found[0] == found[1]
        assert {status for status, _ in found[0].values()} == {"ok"}
        assert len(found[0]) == 3 * len(DOCS)
        return [answer for _, (_, answer) in sorted(found[0].items())]

    return answers


@pytest.fixture
def plain(answered):
    """The answers without any setting, computed once."""
    _PLAIN[:] = _PLAIN or answered()
    return list(_PLAIN)


_PLAIN: list[str] = []


def test_every_setting_that_transformers_knows_is_accounted_for_once():
    unknown = sorted(set(vars(GenerationConfig())) - generation.KNOWN)
    assert not unknown, f"new in this release of transformers: say in generation.py what becomes of {unknown}"
    groups = [generation.OURS, generation.HONOURED, generation.OVERRIDDEN.keys(), generation.NO_EFFECT]
    assert sum(map(len, groups)) == len(generation.KNOWN)
    assert len(generation.HONOURED) == sum(
        map(len, (generation.TOKENS, generation.SAMPLING, generation.BEAMS, generation.OWN_RUN))
    )


def test_what_is_not_honoured_is_not_in_the_config_that_generates():
    given = GenerationConfig()
    for name in generation.KNOWN - generation._RULES.keys():
        setattr(given, name, f"value of {name}")
    config, notes = generation.cleaned(given)
    kept = {name for name, value in vars(config).items() if value == f"value of {name}"}
    assert kept == generation.HONOURED - generation._RULES.keys() | {"eos_token_id", "pad_token_id", "bos_token_id"}
    assert [note.partition("=")[0] for note in notes] == sorted(generation.OVERRIDDEN)
    for name in generation.HONOURED & generation._RULES.keys():
        setattr(given, name, -1j)
    config, notes = generation.cleaned(given)
    assert {getattr(config, name) for name in generation.HONOURED & generation._RULES.keys()} == {None}
    assert len(notes) == len(generation.OVERRIDDEN) + len(generation.HONOURED & generation._RULES.keys())


def test_values_that_ask_for_nothing_are_not_named_and_unknown_ones_are():
    given = GenerationConfig(**{name: neutral[-1] for name, neutral in generation.OVERRIDDEN.items()})
    assert generation.cleaned(given)[1] == []
    given.knob_of_tomorrow = 3
    assert generation.cleaned(given)[1] == [
        "knob_of_tomorrow=3 in the checkpoint's generation config has no effect here"
    ]


HOSTILE = {
    "use_cache": False,
    "return_dict_in_generate": True,
    "output_scores": True,
    "output_logits": True,
    "output_attentions": True,
    "output_hidden_states": True,
    "max_time": 1e-9,
    "max_length": 3,
    "min_length": 10_000,
    "stop_strings": ["e"],
    "forced_eos_token_id": 1,
    "num_return_sequences": 2,
    "num_beams": 2,
    "do_sample": True,
    "temperature": 0.7,
    "guidance_scale": 1.5,
    "prompt_lookup_num_tokens": 2,
    "cache_implementation": "static",
    "token_healing": True,
    "remove_invalid_values": True,
}


def test_a_checkpoint_cannot_make_a_run_answer_otherwise(answered, plain, checkpoint, tmp_path, capsys):
    folder = shutil.copytree(checkpoint("llava"), tmp_path / "hostile")
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | HOSTILE))
    capsys.readouterr()
    assert answered(folder) == plain
    said = capsys.readouterr().out
    for name in HOSTILE.keys() & generation.OVERRIDDEN.keys():
        assert f"{name}={HOSTILE[name]} in the checkpoint's generation config has no effect here" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repetition_penalty", 3.0),
        ("no_repeat_ngram_size", 2),
        ("suppress_tokens", list(range(IDS["a"], IDS["z"]))),
        ("bad_words_ids", [[token] for token in range(IDS["a"], IDS["z"])]),
        ("sequence_bias", [[[A], 1000.0]]),
        ("begin_suppress_tokens", list(range(IDS["!"], IDS["z"]))),
    ],
)
def test_what_sees_only_tokens_is_honoured_from_task_and_checkpoint_alike(name, value, answered, plain):
    of_checkpoint, of_task = answered(settings={name: value}), answered(**{name: value})
    assert of_task == of_checkpoint != plain
    assert answered(batch=1, **{name: value}) == of_task  # padding is no part of the history


def test_a_pressure_to_end_that_grows_is_honoured(answered):
    inclined = {"sequence_bias": [[[IDS["</s>"]], 0.1]]}
    assert max(map(len, answered(**inclined, exponential_decay_length_penalty=(1, 50.0)))) < min(
        map(len, answered(**inclined))
    )


def test_the_least_of_new_tokens_is_honoured(answered, plain):
    ending = {"sequence_bias": [[[IDS["</s>"]], 1000.0]]}
    assert set(answered(**ending)) == {""}
    assert min(map(len, answered(**ending, min_new_tokens=4))) == 4 < len(plain[0])


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"repetition_penality": 5.0},
            "repetition_penality=5.0 has no effect here. Did you mean 'repetition_penalty'?",
        ),
        ({"max_time": 1}, "max_time=1 has no effect here"),
        ({"max_gen_toks": 16}, "max_gen_toks=16 has no effect here"),
        ({"image_aspect_ratio": "original"}, "image_aspect_ratio=original has no effect here"),
        ({"top_p": 0.9}, "top_p=0.9 has no effect at temperature 0"),
        ({"do_sample": True}, "do_sample=True has no effect: as in lmms-eval"),
        ({"temperature": 0.5, "do_sample": False}, "do_sample=False has no effect: as in lmms-eval"),
        ({"length_penalty": 2.0}, "length_penalty=2.0 has no effect without num_beams above 1"),
    ],
)
def test_an_argument_without_effect_is_named(given, line):
    (said,) = generation.check(given)
    assert said.startswith(f"--gen_kwargs {line}")


def test_arguments_that_ask_for_nothing_are_not_named():
    usual = {
        "max_new_tokens": 16,
        "temperature": 0,
        "top_p": 1.0,
        "num_beams": 1,
        "do_sample": False,
        "until": ["\n\n"],
    }
    assert generation.check(usual | {"top_k": None, "length_penalty": 1}) == []
    assert generation.check(usual | {"top_p": 0}) == []  # of many stock tasks
    assert generation.check({"temperature": 0.7, "top_p": 0.8, "top_k": 20, "do_sample": True}) == []


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"temperature": -1}, "temperature=-1: a number from 0 is needed"),
        ({"temperature": "warm"}, "temperature=warm: a number from 0 is needed"),
        ({"repetition_penalty": 0}, "repetition_penalty=0: a number above 0 is needed"),
        (
            {"no_repeat_ngram_size": 1},
            "no_repeat_ngram_size=1: 0 or a whole number from 2 (1 forbids every token of the prompt) is needed",
        ),
        ({"temperature": 1, "top_p": 1.5}, "top_p=1.5: a number from 0 to 1 is needed"),
        ({"num_beams": 1.5}, "num_beams=1.5: a whole number from 1 is needed"),
        ({"max_new_tokens": "many"}, "max_new_tokens=many: a whole number from 1 is needed"),
        (
            {"suppress_tokens": 3},
            "suppress_tokens=3: a list of token ids, which a task's YAML file can give, is needed",
        ),
        ({"do_sample": "perhaps"}, "do_sample=perhaps: True or False is needed"),
        ({"temperature": float("inf")}, "temperature=inf: a number from 0 is needed"),
        ({"repetition_penalty": float("nan")}, "repetition_penalty=nan: a number above 0 is needed"),
        ({"length_penalty": -float("inf")}, "length_penalty=-inf: a number is needed"),
        (
            {"top_k": 10**5000, "temperature": 1},
            "top_k=(a number of thousands of digits): a whole number from 0 is needed",
        ),
        ({"max_new_tokens": 0}, "max_new_tokens=0: a whole number from 1 is needed"),
        ({"early_stopping": "soon", "num_beams": 2}, "early_stopping=soon: True, False or never is needed"),
        ({"until": [1]}, "until=[1]: a text or a list of texts is needed"),
        (
            {"bad_words_ids": [1]},
            "bad_words_ids=[1]: a list of lists of token ids, which a task's YAML file can give, is needed",
        ),
        (
            {"sequence_bias": "x"},
            "sequence_bias=x: a list of pairs, token ids and a number, which a task's YAML file can give, is needed",
        ),
        (
            {"exponential_decay_length_penalty": [1]},
            "exponential_decay_length_penalty=[1]: a first token and a factor, which a task's YAML file can give, is "
            "needed",
        ),
    ],
)
def test_a_value_that_is_not_allowed_is_refused(given, line):
    with pytest.raises(ConfigError) as refused:
        generation.check(given)
    assert str(refused.value) == f"--gen_kwargs {line}"


def test_arguments_are_checked_before_weights_are_loaded_and_named_once(checkpoint, environment, capsys):
    model = toy.wrapper(checkpoint("llava"))
    with pytest.raises(RunStopped):
        grid.ask(model, DOCS, repetition_penalty=-1)
    assert "_model" not in model.__dict__
    assert "--gen_kwargs repetition_penalty=-1" in capsys.readouterr().err
    for _ in range(2):
        grid.ask(model, DOCS[:2], max_gen_toks=16)
    assert capsys.readouterr().out.count("max_gen_toks=16 has no effect") == 1

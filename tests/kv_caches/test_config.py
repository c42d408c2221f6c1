"""The environment is read once; every wrong value is one clear line that says what to write instead."""

import pytest

from kv_caches import ConfigError, KVConfig


def read(**env):
    return KVConfig.from_env(env)


def test_unset_means_stock_behaviour():
    assert read(PATH="/bin") is None


@pytest.mark.parametrize("name", ["TGV-KV", "tgv_kv", "tgvkv", "Tgv Kv"])
def test_spelling_of_the_method_does_not_matter(name):
    assert read(KV_CACHE_TYPE=name, PRUNE_RATIO="0.95").method == "tgv_kv"


@pytest.mark.parametrize("name", ["none", "full", "Full-KV"])
def test_none_is_the_full_cache(name):
    config = read(KV_CACHE_TYPE=name)
    assert (config.method, config.retention) == ("full", 1.0)


def test_prune_ratio_is_the_share_evicted():
    config = read(KV_CACHE_TYPE="tgv_kv", PRUNE_RATIO="0.95")
    assert config.retention == 0.05
    assert "keeps 5 % " in config.describe()
    assert "evicts 95 % " in config.describe()
    assert read(KV_CACHE_TYPE="tgv_kv", PRUNE_RATIO="0.05").retention == 0.95


def test_agreeing_ratio_and_retention_are_one_setting():
    assert read(KV_CACHE_TYPE="tgv_kv", PRUNE_RATIO="0.9", KV_RETENTION="0.1").retention == 0.1


WRONG = {
    "unknown method": (
        {"KV_CACHE_TYPE": "tgv_vk", "PRUNE_RATIO": "0.9"},
        ["KV_CACHE_TYPE='tgv_vk'", "allowed: ", "Did you mean 'tgv_kv'?"],
    ),
    "empty method": ({"KV_CACHE_TYPE": ""}, ["KV_CACHE_TYPE=''", "allowed: "]),
    "unknown variable": (
        {"KV_CACHE_TYP": "full"},
        ["KV_CACHE_TYP is not", "Did you mean 'KV_CACHE_TYPE'?"],
    ),
    "misspelt ratio": ({"PRUNE_RATE": "0.9"}, ["PRUNE_RATE is not", "'PRUNE_RATIO'"]),
    "percent": (
        {"KV_CACHE_TYPE": "tgv_kv", "PRUNE_RATIO": "95"},
        ["PRUNE_RATIO=95 is out of range", "[0, 1)", "PRUNE_RATIO=0.95"],
    ),
    "everything evicted": (
        {"KV_CACHE_TYPE": "tgv_kv", "PRUNE_RATIO": "1"},
        ["PRUNE_RATIO=1 is out of range", "nothing to attend to"],
    ),
    "negative": ({"KV_CACHE_TYPE": "tgv_kv", "PRUNE_RATIO": "-0.1"}, ["PRUNE_RATIO=-0.1 is out of range"]),
    "not a number": (
        {"KV_CACHE_TYPE": "tgv_kv", "PRUNE_RATIO": "5%"},
        ["PRUNE_RATIO='5%' is not a number", "PRUNE_RATIO=0.95"],
    ),
    "nan": ({"KV_CACHE_TYPE": "tgv_kv", "PRUNE_RATIO": "nan"}, ["PRUNE_RATIO='nan' is not a number"]),
    "retention in percent": (
        {"KV_CACHE_TYPE": "tgv_kv", "KV_RETENTION": "5"},
        ["KV_RETENTION=5 is out of range", "KV_RETENTION=0.05"],
    ),
    "nothing kept": ({"KV_CACHE_TYPE": "tgv_kv", "KV_RETENTION": "0"}, ["KV_RETENTION=0 is out of range", "(0, 1]"]),
    "ratio and retention disagree": (
        {"KV_CACHE_TYPE": "tgv_kv", "PRUNE_RATIO": "0.95", "KV_RETENTION": "0.1"},
        ["PRUNE_RATIO=0.95 keeps 5 %", "KV_RETENTION=0.1 keeps 10 %"],
    ),
    "no ratio": ({"KV_CACHE_TYPE": "tgv_kv"}, ["needs a ratio", "PRUNE_RATIO", "KV_RETENTION"]),
    "ratio without method": ({"PRUNE_RATIO": "0.9"}, ["PRUNE_RATIO='0.9' is set but KV_CACHE_TYPE is not"]),
    "ratio for the full cache": (
        {"KV_CACHE_TYPE": "none", "PRUNE_RATIO": "0.9"},
        ["KV_CACHE_TYPE=none keeps every entry", "unset PRUNE_RATIO"],
    ),
    "unknown variant": (
        {"KV_CACHE_TYPE": "tgv_kv", "PRUNE_RATIO": "0.9", "KV_VARIANT": "oficial"},
        ["KV_VARIANT='oficial'", "allowed: paper, protected, official", "'official'"],
    ),
    "unknown decode mode": (
        {"KV_CACHE_TYPE": "tgv_kv", "PRUNE_RATIO": "0.9", "KV_DECODE": "evit"},
        ["KV_DECODE='evit'", "append, evict", "'evict'"],
    ),
    "no decode rule": (
        {"KV_CACHE_TYPE": "tgv_kv", "PRUNE_RATIO": "0.9", "KV_DECODE": "evict"},
        ["KV_DECODE=evict: tgv_kv (variant paper) has no decode rule"],
    ),
    "token limit": (
        {"KV_CACHE_TYPE": "none", "MAX_GENERATED_TOKENS": "many"},
        ["MAX_GENERATED_TOKENS=many: a whole number from 1 is needed"],
    ),
    "token limit of zero": (
        {"KV_CACHE_TYPE": "none", "MAX_GENERATED_TOKENS": "0"},
        ["MAX_GENERATED_TOKENS=0: a whole"],
    ),
    "token limit in superscript": (
        {"KV_CACHE_TYPE": "none", "MAX_GENERATED_TOKENS": "²"},
        ["MAX_GENERATED_TOKENS=²: a whole"],
    ),
    "ratio with underscores": (
        {"KV_CACHE_TYPE": "tgv_kv", "PRUNE_RATIO": "0_0.9"},
        ["PRUNE_RATIO='0_0.9' is not a number"],
    ),
    "unknown model type": (
        {"KV_CACHE_TYPE": "none", "MODEL_TYPE": "llava-7b"},
        ["MODEL_TYPE='llava-7b'", "allowed: ", "'llava-7B'"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_settings_are_one_clear_line(case):
    env, parts = WRONG[case]
    with pytest.raises(ConfigError) as caught:
        KVConfig.from_env(env)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_fingerprint_follows_everything_that_can_change_an_answer():
    base = KVConfig("tgv_kv", 0.05)
    others = [
        KVConfig("tgv_kv", 0.1),
        KVConfig("tgv_kv", 0.05, variant="official"),
        KVConfig("tgv_kv", 0.05, variant="official", decode="evict"),
        KVConfig("tgv_kv", 0.05, max_new_tokens=32),
        KVConfig(),
    ]
    prints = {c.fingerprint(model="a") for c in [base, *others]} | {base.fingerprint(model="b")}
    assert len(prints) == len(others) + 2
    assert base.fingerprint(model="a") == KVConfig("TGV-KV", 0.05, model_type="llava-7B").fingerprint(model="a")
    assert base.fingerprint().startswith("v1-")


def test_a_limit_that_comes_as_text_is_a_number():
    assert KVConfig("tgv_kv", 0.05, max_new_tokens=" 32") == KVConfig("tgv_kv", 0.05, max_new_tokens=32)


def test_a_method_without_its_budget_is_no_full_cache():
    with pytest.raises(ConfigError, match=r"method='tgv_kv' needs retention, the share kept: 0.05 keeps 5 %"):
        KVConfig("TGV-KV")
    assert KVConfig().retention == KVConfig("none").retention == 1.0

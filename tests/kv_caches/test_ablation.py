"""Table 1 is data: every row builds from parts, and rows that are a method keep what that method keeps."""

import re

import pytest
import torch

from kv_caches import ConfigError, KVConfig, registry
from kv_caches.methods import ablation

from .support import build, fixture_stats, kept_lists, prompt_of, random_stats

PROMPT = prompt_of("TTTT" + "V" * 30 + "TTT" + "V" * 10 + "T" * 9)


def kept(name, variant, retention=0.3):
    method = build(name, variant)
    return kept_lists(method.select(random_stats(PROMPT, method.needs), retention))


def test_the_table_is_complete():
    rows = [tuple(row.values()) for row in ablation.rows().values()]
    for budget in ("uniform", "vv", "tv", "tt"):
        for importance in ("window", "self", "vv_tt", "tv_tt"):
            assert (budget, importance, "as_scored") in rows
        for retention in ("text_first", "vision_first"):
            assert (budget, "random", retention) in rows
    assert len(set(rows)) == len(rows)


def test_rows_are_named_by_their_parts():
    for name, row in ablation.rows().items():
        parts = [row["budget"], row["importance"], row["retention"]]
        assert name == "-".join(parts).removesuffix("-as_scored")


def test_rows_that_are_methods():
    assert kept("ablation", "tv-twr-text_first") == kept("tgv_kv", "paper")
    assert kept("ablation", "uniform-window") == kept("snapkv", "paper")
    assert kept("ablation", "uniform-random-text_first") == kept("random_text_first", "plain")
    assert kept("ablation", "uniform-random-vision_first") == kept("random_vision_first", "plain")


def test_block_masses_are_those_of_the_attention_map():
    method = build("ablation", "tv-tv_tt")
    stats = fixture_stats("S1", frozenset({ablation.TEXT, ablation.VISION}))
    attention = torch.stack([torch.tensor(layer).mean(0) for layer in fixture_attention()])
    prompt = stats.prompt
    for rows, columns in (("text", "vision"), ("text", "text"), ("vision", "vision")):
        blocks = attention[:, getattr(prompt, rows)][:, :, getattr(prompt, columns)]
        masses = blocks.sum((1, 2))
        part = ablation.BlockMass(ablation.Received(rows), columns)
        received = [stats.get(part.rows, i)[getattr(prompt, columns)].sum() for i in range(2)]
        torch.testing.assert_close(torch.stack(received), masses)
    ours = method.scorer.score(stats, 0, 4)[0]
    torch.testing.assert_close(ours, attention[0, prompt.text].sum(0))


def fixture_attention():
    from .support import CASES

    return CASES["inputs"]["S1"]["attention"]


def test_vision_is_ranked_by_vision_rows():
    method = build("ablation", "uniform-vv_tt")
    stats = fixture_stats("S1", method.needs)
    attention = torch.tensor(fixture_attention()[1]).mean(0)
    scores = method.scorer.score(stats, 1, 4)[0]
    torch.testing.assert_close(scores[2:6], attention[2:6, 2:6].sum(0))
    torch.testing.assert_close(scores[[0, 1, 6, 7]], attention[[0, 1, 6, 7]][:, [0, 1, 6, 7]].sum(0))


def test_a_row_is_a_variant():
    config = KVConfig.from_env({"KV_CACHE_TYPE": "ablation", "KV_VARIANT": "vv-self", "PRUNE_RATIO": "0.9"})
    assert config.build().variant == "vv-self"
    with pytest.raises(ConfigError, match=re.escape("Did you mean 'tv-tv_tt'?")):
        registry.build("ablation", "tv-tvtt")


def test_a_row_with_an_unknown_part_says_so():
    with pytest.raises(ConfigError, match=r"row x: importance: 'tv_t' is not one of .*Did you mean 'tv_tt'"):
        ablation.part("x", "importance", "tv_t", ablation.IMPORTANCE)

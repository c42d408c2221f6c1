"""FastV and VisionZip choose what the worked cases say; the unusual inputs do not crash."""

import pytest
import torch

from kv_caches.prompt import Prompt
from kv_caches.statistics import LastRow
from kv_caches.token_pruning import fastv, visionzip

from .support import by_id, case_list, fixture_stats, prompt_of


@pytest.mark.parametrize("case", case_list("fastv"), ids=by_id)
def test_fastv(case):
    params, last_row = case["params"], LastRow()
    stats = fixture_stats(case["input"], frozenset({last_row}))
    flags = torch.zeros(stats.prompt.length).bool()
    flags[params["vision_start"] : params["vision_start"] + params["vision_len"]] = True
    kept = fastv(stats.get(last_row, params["attn_layer"]), Prompt(flags), params["keep"])
    assert kept.tolist() == case["expected"]["kept"]


def test_fastv_ranks_the_tokens_of_all_images_together_and_keeps_all_text():
    row = torch.tensor([[0.0, 0.3, 0.1, 0.0, 0.2, 0.4, 0.0]] * 2)
    assert fastv(row, prompt_of("TVVTVVT"), 2).tolist() == [0, 1, 3, 5, 6]
    assert fastv(row, prompt_of("TVVTVVT"), 0).tolist() == [0, 3, 6]
    assert fastv(row, prompt_of("TTTTTTT"), 0).tolist() == list(range(7))


@pytest.mark.parametrize("case", case_list("visionzip"), ids=by_id)
def test_visionzip(case):
    params, expected = case["params"], case["expected"]
    states = [torch.tensor(params[f"vit_{name}"]) for name in ("attention", "keys", "hidden")]
    zipped = visionzip(*states, params["n_dominant"], params["n_contextual"], params["cls"])
    assert zipped.dominant.tolist() == expected["dominant_positions"]
    assert zipped.anchors.tolist() == expected["anchors"]
    joined = dict(zip(zipped.joined.tolist(), zipped.into.tolist()))
    assert joined == {int(token): anchor for token, anchor in expected["assigned_to"].items()}
    torch.testing.assert_close(zipped.hidden, torch.tensor(expected["output"]), atol=1e-5, rtol=0)


def test_visionzip_without_a_class_token_and_with_nothing_to_merge():
    states = [
        torch.tensor(case_list("visionzip")[0]["params"][f"vit_{name}"]) for name in ("attention", "keys", "hidden")
    ]
    attended = states[0].mean((0, 1))
    zipped = visionzip(*states, 4, 3, cls=False)
    assert zipped.dominant.tolist() == sorted(attended.argsort(descending=True)[:4].tolist())
    assert zipped.hidden.shape == (7, 3)
    assert len(visionzip(*states, 4, 0, cls=False).hidden) == 4
    everything = visionzip(*states, 13, 3, cls=False)
    assert torch.equal(everything.hidden, states[2])

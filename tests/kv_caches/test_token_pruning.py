"""VisionZip chooses what the worked cases say; the unusual inputs do not crash."""

import pytest
import torch

from kv_caches.token_pruning import visionzip

from .support import by_id, case_list


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

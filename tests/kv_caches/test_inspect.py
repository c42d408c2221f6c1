"""Inspection: the same numbers as from the attention maps an eager model returns, without those maps."""

import json

import numpy as np
import pytest
import torch

from kv_caches import KVConfig
from kv_caches.inspect import Inspection, Picture, bin_of, inspected, main, shown_positions
from tests import models, prompts

CONFIGS = [KVConfig(method="full"), KVConfig(method="snapkv", retention=0.3), KVConfig(method="tgv_kv", retention=0.2)]


@pytest.fixture(scope="module", params=["llava", "qwen3_vl"])
def case(request):
    """A model, one prompt, its eager attention maps (L, H, M, M) over prompt and answer, and an inspection of it."""
    model = models.build(request.param, "eager").eval()
    inputs = prompts.inputs(model, prompts.kinds(request.param)[0])
    length = inputs["input_ids"].shape[1]
    with Inspection(model, CONFIGS, Picture(8)) as inspection:
        output = model.generate(**inputs, max_new_tokens=4, min_new_tokens=4, do_sample=False)
        found = {config: inspection.coverage(config) for config in CONFIGS}
        kept = {c: inspection.methods[c].select(inspection.stats, c.retention).kept for c in CONFIGS}
        prompt = inspection.stats.prompt
        layers = [inspection.stats.get(inspection.picture, layer) for layer in range(inspection.stats.n_layers)]
    fed = {"input_ids": output[:, :-1], "attention_mask": torch.ones_like(output[:, :-1])}
    extra = {key: value for key, value in inputs.items() if key not in fed}
    if "mm_token_type_ids" in extra:
        new = output.shape[1] - 1 - length
        extra["mm_token_type_ids"] = torch.nn.functional.pad(extra["mm_token_type_ids"], (0, new))
    with torch.no_grad():
        maps = torch.stack(model(**fed, **extra, output_attentions=True).attentions)[:, 0]
    return prompt, maps, layers, found, kept, length


def test_maps_and_sums_are_those_of_the_attention(case):
    prompt, maps, layers, _, _, length = case
    bins = bin_of(length, 8)
    for layer, found in enumerate(layers):
        mean = maps[layer].mean(0)[:length, :length].double()
        folded = torch.zeros(8, 8).double()
        for a in range(8):
            for b in range(8):
                folded[a, b] = mean[bins == a][:, bins == b].sum(1).mean()
        np.testing.assert_allclose(found["map"], folded, atol=1e-5)
        np.testing.assert_allclose(found["received"], mean.sum(0), atol=1e-4)
        np.testing.assert_allclose(found["from_text"], mean[prompt.text].sum(0), atol=1e-4)
        roles = (prompt.vision, prompt.text)
        blocks = [[mean[a][:, b].sum() / len(a) for b in roles] for a in roles]
        np.testing.assert_allclose(found["blocks"], blocks, atol=1e-5)


def test_coverage_is_the_attention_of_the_answer_on_what_is_kept(case):
    _, maps, _, found, kept, length = case
    for config, coverage in found.items():
        for layer, sets in enumerate(kept[config]):
            paid = maps[layer][:, length:, :length].double().sum(1)
            per = len(paid) // len(sets)
            share = sum(paid[i * per : (i + 1) * per][:, sets[i]].sum() for i in range(len(sets))) / paid.sum()
            assert coverage[layer] == pytest.approx(float(share), abs=1e-4)
    np.testing.assert_allclose(found[CONFIGS[0]], 1)


def test_similarity_is_the_mean_cosine_of_different_keys(case):
    prompt, _, layers, _, _, _ = case
    shown = shown_positions(prompt.is_vision)
    assert set(shown.tolist()) == set(range(prompt.length)), "the prompt is small enough to be shown whole"
    v = prompt.vision.numel()
    for found in layers:
        cosines = found["cosines"]
        np.testing.assert_allclose(np.diag(cosines), 1, atol=1e-5)
        parts = [cosines[:v, :v], cosines[v:, v:]]
        means = [(part.sum() - len(part)) / (len(part) * (len(part) - 1)) for part in parts]
        np.testing.assert_allclose(found["similarity"], [*means, cosines[:v, v:].mean()], atol=1e-4)


def test_the_command_writes_a_file_per_prompt(tmp_path, capsys):
    from tiny_vlm import MODEL_DIR
    from tiny_vlm.data import make_samples

    sample = make_samples("scene", "test", 1)[0]
    sample.image.save(tmp_path / "a.png")
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"prompt": sample.question, "images": ["a.png"]}) + "\n")
    options = [
        "--model",
        str(MODEL_DIR),
        "--prompts",
        str(tmp_path / "prompts.jsonl"),
        "--output",
        str(tmp_path / "out"),
    ]
    options += ["--methods", "tgv_kv,h2o", "--retention", "0.1", "--device", "cpu"]
    assert main(options) == 0
    content = np.load(tmp_path / "out" / "0.npz")
    meta = json.loads(str(content["meta"]))
    assert content["coverage"].shape == (2, 6)
    assert meta["prompt"] == sample.question
    assert (content["map"].astype(float).sum(-1) - 1).max() < 0.01
    assert main([*options, "--methods", "tvg_kv"]) == 2
    assert "tgv_kv" in capsys.readouterr().err


def test_an_answer_of_one_token_has_no_coverage():
    model = models.build("llava", "eager").eval()
    inputs = prompts.inputs(model, prompts.kinds("llava")[0])

    class Tokenizer:
        def decode(self, ids, **_):
            return "x"

    arrays, meta = inspected(model, Tokenizer(), inputs, CONFIGS, 1, 8)
    assert meta["steps"] == 0
    assert arrays["coverage"].size == 0

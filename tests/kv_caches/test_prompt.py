"""Which tokens the released TGV-KV code takes for vision in a prompt with pictures and video: those of one id."""

from types import SimpleNamespace

import pytest
import torch

from kv_caches import KVConfig, attach
from kv_caches.prompt import split_batch, vision_token_ids
from kv_caches.shared import SharedPrefill
from tests.models import IMAGE, VIDEO, build
from tests.prompts import Sample, add_image, add_video, collate

QWEN = SimpleNamespace(image_token_id=151655, video_token_id=151656)
MIXED = torch.tensor([[1, 2, 151655, 3, 151656, 151656, 4]])


def block(ids, model_type=None):
    (prompt,) = split_batch(torch.as_tensor(ids), None, vision_token_ids(QWEN, model_type))
    return prompt.official_block


def test_the_image_counts_and_for_video_types_the_video():
    assert split_batch(torch.tensor([[1, 2, 151655, 3, 151656, 4]]), None, (151655, 151656))[0].official_block == (2, 3)
    assert block(MIXED) == block(MIXED, "qwen-8B") == (2, 3)
    assert block(MIXED, "qwen-8B-video") == (4, 6)


def test_a_prompt_with_one_kind_of_vision_does_not_depend_on_the_type():
    for token in (151655, 151656):
        assert {block([[1, token, token, 5]], name) for name in (None, "qwen-4B", "qwen-4B-video")} == {(1, 3)}


def test_every_method_but_the_released_one_sees_both():
    (prompt,) = split_batch(MIXED, None, vision_token_ids(QWEN, "qwen-8B-video"))
    assert prompt.vision.tolist() == [2, 4, 5]


def test_ids_are_read_whatever_a_config_calls_them():
    assert vision_token_ids(SimpleNamespace(image_token_index=9, video_token_index=None)) == (9,)
    assert vision_token_ids(SimpleNamespace()) == ()
    assert vision_token_ids(QWEN, "qwen-8B-video") == (151656, 151655)


def mixed_prompt(model):
    """Text, a picture, text, a video, text."""
    result, random = Sample(), torch.Generator().manual_seed(0)
    result.ids += [7, 8, 9]
    add_image(model, result, 1, False, random)
    result.ids += [11, 12]
    add_video(model, result, random)
    result.ids += [13, 14, 15]
    return collate(model, [result])


@pytest.mark.parametrize(("model_type", "token"), [(None, IMAGE), ("qwen-8B-video", VIDEO)])
def test_an_attached_model_counts_by_its_type_alone_and_in_a_sweep(model_type, token, monkeypatch):
    monkeypatch.setattr("kv_caches.engine.check_model_type", lambda *_: None)  # this one is smaller than any row's
    model = build("qwen3_vl")
    batch, config = mixed_prompt(model), KVConfig("tgv_kv", 0.3, variant="official", model_type=model_type)
    at = (batch["input_ids"][0] == token).nonzero().flatten()
    with attach(model, config) as attachment, torch.no_grad():
        model(**batch)
        alone = attachment.kept[0]
    with SharedPrefill(model, [config]) as shared, torch.no_grad():
        model(**batch)
        assert shared._samples[0].prompt.official_block == (int(at[0]), int(at[0]) + len(at))
        cache, _ = shared.fork([(0, config)])
        assert [layer.keys.shape[2] for layer in cache.layers] == [kept[0].numel() for kept in alone]


def test_what_counts_is_in_the_fingerprint_of_the_released_code_only():
    def prints(variant):
        types = (None, "qwen-8B", "qwen-8B-video")
        return {KVConfig("tgv_kv", 0.3, variant=variant, model_type=name).fingerprint() for name in types}

    assert len(prints("official")) == 2
    assert len(prints("paper")) == 1

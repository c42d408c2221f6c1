"""A record can say which positions stayed, and nothing else changes by it."""

import base64
import zlib

import numpy as np
import pytest
import torch

from kv_caches import KVConfig, attach
from kv_caches.shared import SharedPrefill
from tests import models, prompts


def unpacked(kept):
    bits = np.unpackbits(np.frombuffer(zlib.decompress(base64.b64decode(kept["bits"])), np.uint8))
    return bits[: np.prod(kept["shape"])].reshape(kept["shape"]).astype(bool)


@pytest.mark.parametrize("method", ["tgv_kv", "snapkv", "full"])
def test_the_bits_are_the_positions_that_stayed(method):
    model = models.build("qwen3_vl")
    inputs = prompts.inputs(model, *prompts.kinds("qwen3_vl")[:2])
    with attach(model, KVConfig(method=method, retention=1.0 if method == "full" else 0.3)) as attachment:
        attachment.record_kept = True
        model(**inputs)
        proofs = attachment.take_records()
        for proof, layers in zip(proofs, attachment.kept, strict=True):
            stayed = unpacked(proof["kept"])
            assert stayed.shape[2] == proof["prompt_tokens"]
            for layer, sets in enumerate(layers):
                for i in range(stayed.shape[1]):
                    assert np.flatnonzero(stayed[layer, i]).tolist() == sets[i % len(sets)].tolist()


def test_forks_record_them_too_and_only_if_asked():
    model = models.build("llava")
    inputs = prompts.inputs(model, prompts.kinds("llava")[0])
    config = KVConfig(method="tgv_kv", retention=0.5)
    with SharedPrefill(model, [config]) as shared, torch.no_grad():
        model(**inputs)
        (plain,) = shared.fork([(0, config)])[1]
        shared.record_kept = True
        (more,) = shared.fork([(0, config)])[1]
    assert more.pop("kept")["shape"][1] == 1
    assert more == plain

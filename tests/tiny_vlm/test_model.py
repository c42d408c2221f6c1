"""The committed model, loaded as anyone would load it."""

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, LlavaForConditionalGeneration

from tiny_vlm import MODEL_DIR
from tiny_vlm.data import KINDS, make_samples
from tiny_vlm.evaluate import answer, prompt
from tiny_vlm.scores import score


@pytest.fixture(scope="module")
def processor():
    return AutoProcessor.from_pretrained(MODEL_DIR)


@pytest.fixture(scope="module")
def model():
    return LlavaForConditionalGeneration.from_pretrained(MODEL_DIR, dtype=torch.float32)


@pytest.fixture(scope="module")
def samples():
    return [sample for kind in KINDS for sample in make_samples(kind, "test", 4)]


def encode(processor, samples):
    texts = [prompt(processor, sample.question) for sample in samples]
    images = [sample.image for sample in samples]
    return processor(text=texts, images=images, padding=True, return_tensors="pt")


def test_auto_class_gives_a_llava_model_with_grouped_queries_in_at_least_six_layers():
    model = AutoModelForImageTextToText.from_pretrained(MODEL_DIR, dtype=torch.float32)
    text = model.config.text_config
    assert type(model) is LlavaForConditionalGeneration
    assert text.num_hidden_layers >= 6
    assert text.num_attention_heads > text.num_key_value_heads


def test_weights_are_small():
    assert (MODEL_DIR / "model.safetensors").stat().st_size <= 16e6


def test_special_tokens_agree(processor, model):
    tokenizer, generation = processor.tokenizer, model.generation_config
    assert generation.eos_token_id == tokenizer.eos_token_id
    assert generation.pad_token_id == tokenizer.pad_token_id
    assert generation.bos_token_id == tokenizer.bos_token_id
    assert model.config.image_token_id == tokenizer.convert_tokens_to_ids("<image>")


def test_image_becomes_576_tokens_with_text_on_both_sides(processor, model, samples):
    ids = encode(processor, samples[:1])["input_ids"][0]
    places = (ids == model.config.image_token_id).nonzero().flatten()
    assert len(places) == 576
    assert places[-1] - places[0] == 575
    assert places[0] > 0
    assert places[-1] < len(ids) - 1


def test_content_as_a_string_gives_the_same_prompt(processor):
    conversation = [{"role": "user", "content": "<image>\nvalue of tax?"}]
    text = processor.tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    assert text == prompt(processor, "value of tax?")


def test_system_message_comes_first(processor):
    conversation = [
        {"role": "system", "content": "be short."},
        {"role": "user", "content": "<image>\nvalue of tax?"},
    ]
    text = processor.apply_chat_template(conversation, add_generation_prompt=True)
    assert text == "<s>be short. USER: <image>\nvalue of tax? ASSISTANT:"


def test_left_padded_batch_answers_as_single_samples_do(processor, model, samples):
    few = samples[::2]
    assert answer(model, processor, few, batch_size=8) == answer(model, processor, few, batch_size=1)


def test_left_padded_logits_equal_single_logits(processor, model, samples):
    pair = sorted(samples, key=lambda sample: len(sample.question))[:: len(samples) - 1]
    with torch.no_grad():
        batch = model(**encode(processor, pair)).logits[:, -1]
        single = torch.cat([model(**encode(processor, [sample])).logits[:, -1] for sample in pair])
    torch.testing.assert_close(batch, single, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("question", ["", "why is the sky so far away", "naïve 東京 🙂 <unk> \u2581 \t\n", "tax" * 40])
def test_odd_prompts_do_not_crash(processor, model, samples, question):
    text = prompt(processor, question)
    inputs = processor(text=[text], images=[samples[0].image], return_tensors="pt")
    output = model.generate(**inputs, max_new_tokens=3)
    assert output.shape[1] > inputs["input_ids"].shape[1]


def test_canonical_answers_survive_the_tokenizer(processor):
    tokenizer = processor.tokenizer
    for kind in KINDS:
        for sample in make_samples(kind, "test", 50):
            ids = tokenizer(sample.answers[0], add_special_tokens=False)["input_ids"]
            assert tokenizer.unk_token_id not in ids
            assert len(ids) >= 3
            assert tokenizer.decode(ids) == sample.answers[0]


def test_most_answers_are_right(processor, model, samples):
    answers = answer(model, processor, samples)
    assert sum(map(score, samples, answers)) >= 0.8 * len(samples)

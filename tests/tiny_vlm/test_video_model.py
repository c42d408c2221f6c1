"""The committed video model, loaded as anyone would load it."""

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, Qwen3VLForConditionalGeneration, Qwen3VLProcessor

from tiny_vlm.video import MODEL_DIR
from tiny_vlm.video.data import KINDS, make_samples
from tiny_vlm.video.evaluate import answer, encode, event_f1, is_right, prompt
from tiny_vlm.video.world import SECONDS


@pytest.fixture(scope="module")
def processor():
    return AutoProcessor.from_pretrained(MODEL_DIR)


@pytest.fixture(scope="module")
def model():
    return Qwen3VLForConditionalGeneration.from_pretrained(MODEL_DIR, dtype=torch.float32)


@pytest.fixture(scope="module")
def samples():
    return {kind: make_samples(kind, "test", 7) for kind in KINDS}


def test_auto_classes_give_a_qwen3_vl_with_deepstack_and_grouped_queries(processor):
    model = AutoModelForImageTextToText.from_pretrained(MODEL_DIR, dtype=torch.float32)
    text, vision = model.config.text_config, model.config.vision_config
    assert type(model) is Qwen3VLForConditionalGeneration
    assert type(processor) is Qwen3VLProcessor
    assert len(vision.deepstack_visual_indexes) == 2
    assert text.num_hidden_layers >= 6
    assert text.num_attention_heads > text.num_key_value_heads
    assert text.rope_parameters["mrope_interleaved"]


def test_weights_are_small():
    assert (MODEL_DIR / "model.safetensors").stat().st_size <= 8e6


def test_special_tokens_agree(processor, model):
    tokenizer, config = processor.tokenizer, model.config
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert config.video_token_id == processor.video_token_id == tokenizer.convert_tokens_to_ids("<|video_pad|>")
    assert config.image_token_id == processor.image_token_id
    assert config.vision_start_token_id == processor.vision_start_token_id
    assert tokenizer.padding_side == "left"


def test_a_video_becomes_49_tokens_and_a_time_stamp_for_each_second(processor, model, samples):
    inputs = encode(processor, samples["moment"][:1])
    ids = inputs["input_ids"][0]
    video = ids == model.config.video_token_id
    assert video.sum() == 49 * SECONDS
    assert torch.equal(video, inputs["mm_token_type_ids"][0] == 2)
    text = processor.tokenizer.decode(ids[~video])
    for second in range(SECONDS):
        assert f"<{second}.2 seconds><|vision_start|><|vision_end|>" in text
    assert processor.tokenizer.unk_token_id not in ids
    assert len(ids) <= 500


def test_time_stamps_of_any_video_up_to_a_minute_are_known(processor):
    for stamp in ("<0.0 seconds>", "<3.5 seconds>", "<12.8 seconds>", "<59.9 seconds>"):
        ids = processor.tokenizer(stamp)["input_ids"]
        assert processor.tokenizer.unk_token_id not in ids
        assert len(ids) <= 3
        assert processor.tokenizer.decode(ids) == stamp


def test_chat_template_follows_qwen(processor):
    text = prompt(processor, "which way does the star move?")
    assert text == (
        "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|>which way does the star move?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_letters_of_options_survive_the_tokenizer(processor):
    tokenizer = processor.tokenizer
    for text in ("A. a red star B. a blue star", "the answer is B", "the answer is A."):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_left_padded_batch_answers_as_single_samples_do(processor, model, samples):
    few = [samples[kind][1] for kind in KINDS]
    for style in ("primary", "multiple_choice"):
        assert answer(model, processor, few, style, batch_size=4) == answer(model, processor, few, style, batch_size=1)


def test_an_image_is_answered_too(processor, model, samples):
    content = [{"type": "image"}, {"type": "text", "text": "describe what happens in the video."}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    inputs = processor(text=[text], images=[samples["order"][0].frames[-1]], return_tensors="pt")
    assert (inputs["input_ids"] == model.config.image_token_id).sum() == 49
    output = model.generate(**inputs, max_new_tokens=3)
    assert output.shape[1] > inputs["input_ids"].shape[1]


def test_most_answers_are_right_and_blind_ones_are_not(processor, model, samples):
    short = [sample for kind in ("moment", "order", "motion") for sample in samples[kind]]
    seen, blind = (answer(model, processor, short, blind=blind) for blind in (False, True))
    assert sum(is_right(sample, "primary", text) for sample, text in zip(short, seen, strict=True)) >= 18
    assert sum(is_right(sample, "primary", text) for sample, text in zip(short, blind, strict=True)) <= 7


def test_multiple_choice_beats_chance(processor, model, samples):
    short = [sample for kind in ("moment", "order", "motion") for sample in samples[kind]]
    chosen = answer(model, processor, short, "multiple_choice")
    assert sum(is_right(s, "multiple_choice", text) for s, text in zip(short, chosen, strict=True)) >= 14


def test_descriptions_name_most_events(processor, model, samples):
    texts = answer(model, processor, samples["describe"])
    assert sum(map(event_f1, samples["describe"], texts)) >= 0.8 * len(texts)


def test_scores_count_what_they_say(samples):
    sample = samples["motion"][0]
    others = [option for option in sample.options if option != sample.answer]
    assert is_right(sample, "primary", f"the star moves {sample.answer}.")
    assert not is_right(sample, "primary", f"the star moves {others[0]}")
    assert is_right(sample, "multiple_choice", f"the answer is {'ABCD'[sample.correct]}")
    assert not is_right(sample, "multiple_choice", f"the answer is {'BCDA'[sample.correct]}")
    description = samples["describe"][0]
    events = description.answer.split(", ")
    assert event_f1(description, description.answer) == 1
    assert event_f1(description, events[0]) == 2 / (1 + len(events))

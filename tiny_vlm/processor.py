"""Builds the tokenizer, the chat template and the processor; all stock classes, saved next to the weights."""

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import CLIPImageProcessor, LlavaProcessor, PreTrainedTokenizerFast

from tiny_vlm import wording
from tiny_vlm.canvas import CELL, SIDE
from tiny_vlm.glyphs import SHAPES

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<image>")
IMAGE_TOKENS = (SIDE // CELL) ** 2
SPACE = "\u2581"

CHAT_TEMPLATE = """\
{{ bos_token }}\
{% for message in messages %}\
{% set content = message['content'] %}\
{% if content is string %}\
{% set text = content %}\
{% else %}\
{% set parts = namespace(text='') %}\
{% for part in content if part['type'] == 'image' %}{% set parts.text = parts.text + '<image>\\n' %}{% endfor %}\
{% for part in content if part['type'] == 'text' %}{% set parts.text = parts.text + part['text'] %}{% endfor %}\
{% set text = parts.text %}\
{% endif %}\
{% if message['role'] == 'system' %}{{ text + ' ' }}\
{% elif message['role'] == 'user' %}{{ 'USER: ' + text + ' ' }}\
{% else %}{{ 'ASSISTANT: ' + text + eos_token }}\
{% endif %}\
{% endfor %}\
{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"""


def build_processor() -> LlavaProcessor:
    """The processor turns `<image>` into 576 placeholders and an image into (3, 336, 336) in [-1, 1]."""
    image_processor = CLIPImageProcessor(
        size={"shortest_edge": SIDE},
        crop_size={"height": SIDE, "width": SIDE},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    return LlavaProcessor(
        image_processor=image_processor,
        tokenizer=build_tokenizer(),
        patch_size=CELL,
        vision_feature_select_strategy="full",
        chat_template=CHAT_TEMPLATE,
    )


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word, with digits and punctuation on their own: "tax 48." is `▁tax ▁ 4 8 .`."""
    tokenizer = Tokenizer(models.WordLevel({}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always", split=True),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Punctuation(),
        ]
    )
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    vocabulary = {token: i for i, token in enumerate((*SPECIAL, *_pieces(tokenizer)))}
    tokenizer.model = models.WordLevel(vocabulary, unk_token="<unk>")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        extra_special_tokens={"image_token": "<image>"},
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )


def _pieces(tokenizer: Tokenizer) -> list[str]:
    """Every piece that the wording of pictures, questions and chats can produce, sorted."""
    texts = ["user: assistant: 0123456789 .,?!:;-'()", "a an the is and not yes no"]
    texts += [*wording.WORDS, *wording.LETTERS, *wording.COLOURS, *wording.SLOTS, *SHAPES]
    texts += [*wording.BEFORE, *wording.AFTER, *wording.SYSTEM]
    for asked in (wording.SHORT, wording.FULL):
        texts += [text.replace("{key}", "") for texts_of_topic in asked.values() for text in texts_of_topic]
    split = tokenizer.pre_tokenizer.pre_tokenize_str
    return sorted({piece for text in texts for piece, _ in split(tokenizer.normalizer.normalize_str(text))})

"""Builds the tokenizer, the chat template and the processor; all stock classes, saved next to the weights."""

import itertools

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

from tiny_vlm.glyphs import SHAPES
from tiny_vlm.video.questions import LETTERS, SPACE, WORDING
from tiny_vlm.video.world import CELL, COLOURS, DIRECTIONS, FPS

SPECIAL = (
    "<|endoftext|>", "<unk>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
    "<|video_pad|>",
)  # fmt: skip
CIRCLED = dict(zip(LETTERS, "\u24d0\u24d1\u24d2\u24d3"))
"""Letters of options inside the tokenizer, so that "A." is not the article "a"."""

PIECE = rf"<\d|\.\d{SPACE}seconds>|{SPACE}?[a-z\u24d0-\u24d3]+|{SPACE}|\d|\S"

CHAT_TEMPLATE = """\
{%- for message in messages -%}\
{{- '<|im_start|>' + message['role'] + '\\n' -}}\
{%- if message['content'] is string -%}{{- message['content'] -}}\
{%- else -%}\
{%- for part in message['content'] -%}\
{%- if part['type'] == 'image' or 'image' in part or 'image_url' in part -%}\
{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}\
{%- elif part['type'] == 'video' or 'video' in part -%}\
{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}\
{%- elif 'text' in part -%}{{- part['text'] -}}\
{%- endif -%}\
{%- endfor -%}\
{%- endif -%}\
{{- '<|im_end|>\\n' -}}\
{%- endfor -%}\
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""


def build_processor() -> Qwen3VLProcessor:
    """The processor writes `<0.2 seconds>` and 49 placeholders for each pair of frames of 224 x 224 pixels."""
    vision = {
        "patch_size": CELL // 2,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    pixels = {"shortest_edge": 4 * CELL**2, "longest_edge": 1024 * CELL**2}
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=pixels, **vision),
        video_processor=Qwen3VLVideoProcessor(
            size={"shortest_edge": 4 * CELL**2, "longest_edge": 16384 * CELL**2},
            fps=FPS,
            min_frames=2,
            max_frames=64,
            cap_pixels_per_frame=False,
            **vision,
        ),
        tokenizer=build_tokenizer(),
        chat_template=CHAT_TEMPLATE,
    )


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word, with digits and punctuation on their own; `<4.2 seconds>` is `<4` and `.2 seconds>`."""
    tokenizer = Tokenizer(models.WordLevel({}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [
            *(normalizers.Replace(Regex(rf"\b{letter}(?=[.:)]|\s*$)"), circled) for letter, circled in CIRCLED.items()),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Strip(),
            normalizers.Prepend(SPACE),
            normalizers.Replace(" ", SPACE),
            normalizers.Replace(Regex(rf"{SPACE}(?=<\d|[.,?!:;])"), ""),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PIECE), "isolated")
    tokenizer.decoder = decoders.Sequence(
        [
            *(decoders.Replace(circled, letter) for letter, circled in CIRCLED.items()),
            decoders.Metaspace(replacement=SPACE, prepend_scheme="always"),
        ]
    )
    vocabulary = {token: i for i, token in enumerate((*SPECIAL, *_pieces(tokenizer)))}
    tokenizer.model = models.WordLevel(vocabulary, unk_token="<unk>")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|endoftext|>",
        unk_token="<unk>",
        eos_token="<|im_end|>",
        additional_special_tokens=[token for token in SPECIAL if "|" in token],
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )


def _pieces(tokenizer: Tokenizer) -> list[str]:
    """Every piece that videos, questions, answers and chats can produce, sorted."""
    texts = ["user assistant system 0123456789 .,?!:;-'()", "a the is at in it with yes no"]
    texts += ["number appears", "comes moves", "left centre right", "top middle bottom", "the answer is", "A. B. C. D."]
    texts += ["answer with the letter of the right option.", "answer in one sentence.", "you are a helpful assistant."]
    texts += [*COLOURS, *DIRECTIONS, *SHAPES]
    texts += [f"<{digit}.{digit} seconds>" for digit in range(10)]
    for text in itertools.chain.from_iterable((first, *others, lead) for first, others, lead in WORDING.values()):
        texts.append(text.format(key="", shape="", x=""))
    split = tokenizer.pre_tokenizer.pre_tokenize_str
    return sorted({piece for text in texts for piece, _ in split(tokenizer.normalizer.normalize_str(text))} | {SPACE})

"""Scores of the full cache on held-out samples, with stock `generate`: `python -m tiny_vlm.video.evaluate`.

An answer is right if it contains what was asked for as whole words; in multiple choice, if it ends in the right
letter. For descriptions, which have to be right from the first to the last word, the F1 of events is given too.
"+-" is the standard error (Agresti-Coull).
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration
from transformers.video_utils import VideoMetadata

from tiny_vlm.video import MODEL_DIR
from tiny_vlm.video.data import KINDS, VideoSample, make_samples
from tiny_vlm.video.questions import LETTERS, STYLES

MAX_NEW_TOKENS = 110


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    processor = AutoProcessor.from_pretrained(arguments.model)
    model = Qwen3VLForConditionalGeneration.from_pretrained(arguments.model, dtype=torch.float32)
    for kind in arguments.kinds:
        samples = make_samples(kind, arguments.split, arguments.samples)
        for style in arguments.styles:
            start = time.time()
            answers = answer(model, processor, samples, style, arguments.batch, arguments.blind)
            rate = len(samples) / (time.time() - start)
            print(_line(kind, style, samples, answers) + f"  {rate:.1f} samples/s", flush=True)
            for sample, text in list(zip(samples, answers, strict=True))[: arguments.show]:
                print(f"  {question(sample, style)} | {expected(sample, style)} | {text}")


@torch.no_grad()
def answer(
    model: Qwen3VLForConditionalGeneration,
    processor,
    samples: Sequence[VideoSample],
    style: str = "primary",
    batch_size: int = 16,
    blind: bool = False,
) -> list[str]:
    """Greedy answers, left-padded batches. `blind` shows only the first, empty half second of the videos."""
    texts = []
    for start in range(0, len(samples), batch_size):
        batch = samples[start : start + batch_size]
        inputs = encode(processor, batch, style, blind)
        output = model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)
        new = output[:, inputs["input_ids"].shape[1] :]
        texts += [text.strip() for text in processor.batch_decode(new, skip_special_tokens=True)]
    return texts


def encode(processor, samples: Sequence[VideoSample], style: str = "primary", blind: bool = False):
    """The processor's output for a left-padded batch."""
    videos = [sample.frames[:1].repeat(len(sample.frames), 0) if blind else sample.frames for sample in samples]
    return processor(
        text=[prompt(processor, question(sample, style)) for sample in samples],
        videos=videos,
        video_metadata=[
            VideoMetadata(total_num_frames=len(s.frames), fps=s.fps, frames_indices=list(range(len(s.frames))))
            for s in samples
        ],
        do_sample_frames=False,
        padding=True,
        return_tensors="pt",
    )


def prompt(processor, text: str) -> str:
    """The chat text for one video and a question."""
    content = [{"type": "video"}, {"type": "text", "text": text}]
    return processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)


def question(sample: VideoSample, style: str) -> str:
    return sample.question if style == "primary" else getattr(sample, style)


def expected(sample: VideoSample, style: str) -> str:
    return LETTERS[sample.correct] if style == "multiple_choice" else sample.answer


def is_right(sample: VideoSample, style: str, text: str) -> bool:
    wanted = expected(sample, style)
    if style == "multiple_choice":
        return text.rstrip(".").split(" ")[-1] == wanted
    return f" {_plain(wanted)} " in f" {_plain(text)} "


def event_f1(sample: VideoSample, text: str) -> float:
    """F1 of the events of a description, each counted once."""
    named, wanted = (set(_plain(part).split(" , ")) for part in (text, sample.answer))
    return 2 * len(named & wanted) / (len(named) + len(wanted))


def _plain(text: str) -> str:
    return " ".join(text.lower().rstrip(". ").replace(",", " , ").split())


def _line(kind: str, style: str, samples: Sequence[VideoSample], answers: Sequence[str]) -> str:
    count = len(samples)
    mean = sum(is_right(sample, style, text) for sample, text in zip(samples, answers, strict=True)) / count
    safe = (mean * count + 2) / (count + 4)  # Agresti and Coull: not zero where all answers are right
    error = (safe * (1 - safe) / (count + 4)) ** 0.5
    line = f"{kind:8}  {style:15}  {100 * mean:5.1f} +- {100 * error:3.1f}  (n = {count})"
    if kind == "describe" and style != "multiple_choice":
        line += f"  event F1 {100 * sum(map(event_f1, samples, answers)) / count:5.1f}"
    elif style == "primary":
        topics = sorted({sample.topic for sample in samples})
        line += "  " + ", ".join(f"{topic} {_share(topic, style, samples, answers)}" for topic in topics)
    return line


def _share(topic: str, style: str, samples: Sequence[VideoSample], answers: Sequence[str]) -> str:
    right = [is_right(s, style, text) for s, text in zip(samples, answers, strict=True) if s.topic == topic]
    return f"{100 * sum(right) / len(right):.0f} of {len(right)}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=MODEL_DIR)
    parser.add_argument("--split", choices=("train", "test"), default="test")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--styles", nargs="+", choices=STYLES, default=STYLES)
    parser.add_argument("--samples", type=int, default=100, help="samples of each kind (default 100)")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blind", action="store_true", help="show empty videos, to see what questions give away")
    parser.add_argument("--show", type=int, default=0, help="print that many answers of each kind and style")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Scores of the full cache on held-out samples, with stock `generate`: `python -m tiny_vlm.evaluate`."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoProcessor, LlavaForConditionalGeneration

from tiny_vlm import MODEL_DIR
from tiny_vlm.data import KINDS, Sample, make_samples
from tiny_vlm.scores import exact_match, score

METRICS = {"document": "ANLS", "chart": "relaxed accuracy", "scene": "exact match", "caption": "object F1"}


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    processor = AutoProcessor.from_pretrained(arguments.model)
    model = LlavaForConditionalGeneration.from_pretrained(arguments.model, dtype=torch.float32)
    for kind in KINDS:
        samples = make_samples(kind, arguments.split, arguments.samples)
        start = time.time()
        answers = answer(model, processor, samples, arguments.batch)
        rate = len(samples) / (time.time() - start)
        mean = sum(map(score, samples, answers)) / len(samples)
        exact = sum(exact_match(a, s.answers[0]) for s, a in zip(samples, answers, strict=True)) / len(samples)
        print(
            f"{kind:8}  {METRICS[kind]:16} {100 * mean:5.1f}  exact {100 * exact:5.1f}  "
            f"({len(samples)} {arguments.split} samples, {rate:.1f} samples/s)",
            flush=True,
        )
        for sample, text in list(zip(samples, answers, strict=True))[: arguments.show]:
            print(f"  {sample.question} | {sample.answers[0]} | {text}")


@torch.no_grad()
def answer(
    model: LlavaForConditionalGeneration, processor, samples: Sequence[Sample], batch_size: int = 16
) -> list[str]:
    """Greedy answers, left-padded batches."""
    texts = []
    for start in range(0, len(samples), batch_size):
        batch = samples[start : start + batch_size]
        inputs = processor(
            text=[prompt(processor, sample.question) for sample in batch],
            images=[sample.image for sample in batch],
            padding=True,
            return_tensors="pt",
        )
        output = model.generate(**inputs, max_new_tokens=24, do_sample=False)
        new = output[:, inputs["input_ids"].shape[1] :]
        texts += [text.strip() for text in processor.batch_decode(new, skip_special_tokens=True)]
    return texts


def prompt(processor, question: str) -> str:
    """The chat text for one image and a question."""
    content = [{"type": "image"}, {"type": "text", "text": question}]
    return processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=MODEL_DIR)
    parser.add_argument("--split", choices=("train", "test"), default="test")
    parser.add_argument("--samples", type=int, default=200, help="samples of each kind (default 200)")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--show", type=int, default=0, help="print that many answers of each kind")
    return parser.parse_args()


if __name__ == "__main__":
    main()

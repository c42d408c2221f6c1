"""A model whose logits are no numbers answers with whatever token `argmax` makes of them: such an answer is none."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

_NEVER = 1 << 40


class FiniteLogits(LogitsProcessor):
    """Notes for each row at which step its logits stop being finite; costs one maximum per step, on the device.

    Args:
        prompt_length: tokens before the answer, padding included.
    """

    def __init__(self, prompt_length: int):
        self.prompt_length = prompt_length
        self._first: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        broken = ~scores.amax(dim=-1).isfinite()  # a NaN anywhere is the maximum
        step = input_ids.shape[1] - self.prompt_length
        first = torch.full_like(broken, _NEVER, dtype=torch.long) if self._first is None else self._first
        self._first = torch.where(broken & (first > step), step, first)
        return scores

    @property
    def as_list(self) -> LogitsProcessorList:
        return LogitsProcessorList([self])

    def reasons(self, generated: list[int]) -> list[str | None]:
        """Why an answer is none, or None; of beams the worst counts.

        Args:
            generated: per row, the tokens of its answer. What comes after them is thrown away.
        """
        if self._first is None:
            return [None] * len(generated)
        first = self._first.view(len(generated), -1).amin(dim=1).tolist()
        return [_reason(step) if step < count else None for step, count in zip(first, generated, strict=True)]


def _reason(step: int) -> str:
    return (
        f"the model's logits are not finite (NaN or infinite) at token {step + 1} of the answer; float16 overflows in "
        "some models: try dtype=bfloat16 or dtype=float32"
    )

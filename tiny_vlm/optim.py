"""Muon for weight matrices, AdamW for the rest (Keller Jordan, https://kellerjordan.github.io/posts/muon/)."""

from collections import defaultdict
from collections.abc import Iterable

import torch

Named = Iterable[tuple[str, torch.nn.Parameter]]


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal; matrices of one shape are handled in one batch."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: float, momentum: float = 0.95):
        super().__init__(list(parameters), {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            by_shape = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.shape].append(parameter)
            for shape, parameters in by_shape.items():
                updates = torch.stack([self._momentum(p, group["momentum"]) for p in parameters])
                scale = max(1.0, shape[0] / shape[1]) ** 0.5
                for parameter, update in zip(parameters, orthogonal(updates), strict=True):
                    parameter.add_(update.to(parameter.dtype), alpha=-group["lr"] * scale)

    def _momentum(self, parameter: torch.nn.Parameter, momentum: float) -> torch.Tensor:
        buffer = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
        buffer.lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(buffer, momentum)


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Five Newton-Schulz steps towards the nearest orthogonal matrices: (count, rows, columns), bfloat16."""
    x = matrices.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if tall else x


class Optimizer:
    """Both optimizers with one schedule: a short linear rise, then level, then a linear fall over the last part."""

    def __init__(self, named: Named, steps: int, muon_lr: float, adam_lr: float, fall: float = 0.4):
        named = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name and "head" not in name]
        chosen = {id(p) for p in matrices}
        others = [p for _, p in named if id(p) not in chosen]
        self.parameters = [p for _, p in named]
        self.parts = [
            Muon(matrices, muon_lr),
            torch.optim.AdamW(others, adam_lr, (0.9, 0.97), weight_decay=0.0),
        ]
        self.peaks = [muon_lr, adam_lr]
        self.steps, self.fall, self.done = steps, fall, 0

    def step(self) -> None:
        """Clips, updates and clears the gradients."""
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for part, peak in zip(self.parts, self.peaks, strict=True):
            part.param_groups[0]["lr"] = peak * self._share()
            part.step()
            part.zero_grad(set_to_none=True)
        self.done += 1

    def _share(self) -> float:
        rise = (self.done + 1) / min(30, self.steps)
        left = (self.steps - self.done) / (self.fall * self.steps)
        return min(1.0, rise, left)

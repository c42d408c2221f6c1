"""python -m kv_caches.inspect: what a prefill's attention looks like, and what methods keep of the attention to come.

Per prompt one <output>/<n>.npz for `analysis.modality_gap` and `analysis.coverage`: attention maps averaged over heads
and binned over positions, attention received, similarity of keys, and per method and budget the share of the attention
paid while answering with the full cache that falls on entries the method keeps. Reduced in blocks, never N x N.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .attention import LayerView, newest_row
from .config import KVConfig
from .errors import ConfigError, UnsupportedError
from .profile import check, encode, load, read_prompts
from .registry import canonical
from .rows import Row
from .shared import SharedPrefill, sharing
from .statistics import PrefillStats, Statistic

SCHEMA = 1
METHODS = "tgv_kv,h2o,snapkv,streaming_llm,elastic_cache,prefix_kv,pyramid_kv,random"
_SHOWN_KEYS = 96


@dataclass(frozen=True)
class Picture:
    """What is drawn of a layer; all averaged over query heads.

    ``map``: (S, S), S = min(size, N), attention that the mean row of a bin of rows pays to a bin of columns.
    ``received``: (N,) attention summed over rows. ``from_text``: (N,) the same over text rows only.
    ``blocks``: attention an average row pays, [[vision to vision, vision to text], [text to vision, text to text]].
    ``cosines``: (P, P) similarity of keys at ``shown`` positions, mean over KV heads.
    ``similarity``: mean cosine of different keys [vision with vision, text with text, vision with text].
    """

    size: int = 64
    name: str = "picture"

    def collect(self, layer: LayerView) -> dict[str, np.ndarray]:
        length, vision = layer.length, layer.prompt.is_vision.to(layer.keys.device)
        bins = bin_of(length, self.size).to(layer.keys.device)
        count = int(bins[-1]) + 1
        total = torch.zeros(count, count, device=layer.keys.device)
        received, from_text = torch.zeros(2, length, device=layer.keys.device)
        blocks = torch.zeros(2, 2, device=layer.keys.device)
        for index, rows in layer.head_means(torch.arange(length)):
            index, width = index.to(rows.device), rows.shape[-1]
            received[:width] += rows.sum(0)
            from_text[:width] += rows[~vision[index]].sum(0)
            columns = torch.zeros(len(index), count, device=rows.device).index_add_(1, bins[:width], rows)
            total.index_add_(0, bins[index], columns)
            for i, mine in enumerate((vision[index], ~vision[index])):
                to_vision = rows[mine][:, vision[:width]].sum()
                blocks[i] += torch.stack([to_vision, rows[mine].sum() - to_vision])
        rows_of = torch.stack([vision.sum(), (~vision).sum()]).clamp(min=1)[:, None]
        per_bin = torch.bincount(bins, minlength=count)[:, None]
        found = {"map": total / per_bin, "received": received, "from_text": from_text, "blocks": blocks / rows_of}
        return {name: value.cpu().numpy() for name, value in (found | _keys(layer)).items()}


def _keys(layer: LayerView) -> dict[str, Tensor]:
    unit = torch.nn.functional.normalize(layer.keys.float(), dim=-1)  # (G, N, d)
    shown = unit[:, shown_positions(layer.prompt.is_vision).to(unit.device)]
    sums = [unit[:, index.to(unit.device)].sum(1) for index in (layer.prompt.vision, layer.prompt.text)]
    v, t = layer.prompt.vision.numel(), layer.prompt.text.numel()
    own = [((s**2).sum(-1) - n) / max(n * (n - 1), 1) for s, n in zip(sums, (v, t))]
    cross = (sums[0] * sums[1]).sum(-1) / max(v * t, 1)
    cosines = (shown @ shown.transpose(1, 2)).mean(0)
    return {"cosines": cosines, "similarity": torch.stack([own[0].mean(), own[1].mean(), cross.mean()])}


def bin_of(length: int, size: int) -> Tensor:
    """(N,) the bin of every position: at most ``size`` bins of nearly equal length."""
    return torch.arange(length) * min(size, length) // length


def shown_positions(is_vision: Tensor) -> Tensor:
    """Positions whose keys are compared: vision, then text, spread over each."""
    parts = [role.nonzero().flatten() for role in (is_vision, ~is_vision)]
    return torch.cat([p[torch.linspace(0, len(p) - 1, min(len(p), _SHOWN_KEYS // 2)).long()] for p in parts if len(p)])


class Inspection(SharedPrefill):
    """A shared prefill that also notes what generated tokens attend to, with nothing evicted; one prompt at a time.

    Attributes:
        steps: per layer, (H, N) attention of each generated token over the prompt's entries.
    """

    def __init__(self, model: Any, configs: Sequence[KVConfig], picture: Picture):
        self.picture = picture
        super().__init__(model, configs)
        self.steps: list[list[Tensor]] = [[] for _ in self._modules]

    def _statistics(self) -> frozenset[Statistic]:
        return super()._statistics() | {self.picture}

    @property
    def stats(self) -> PrefillStats:
        """Of the prompt."""
        return self._samples[0]

    @torch.no_grad()
    def attention(
        self, call: Any, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, kwargs: Any
    ) -> Any:
        decoding = self._stats is None
        output = super().attention(call, module, query, key, value, mask, kwargs)
        if decoding:
            row = newest_row(query[0, :, 0], key[0], module.scaling)
            self.steps[module.layer_idx].append(row[:, : self.stats.prompt.length].cpu())
        return output

    def coverage(self, config: KVConfig) -> np.ndarray:
        """(L,) share of the attention paid to the prompt while answering that falls on what the method keeps."""
        kept = Row.of(0, config, self.methods[config], self.stats).selection.kept
        return np.array([_covered(rows, sets) for rows, sets in zip(self.steps, kept)])


def _covered(rows: list[Tensor], sets: list[Tensor]) -> float:
    paid = torch.stack(rows).double().sum(0)  # (H, N)
    parts = paid.split(paid.shape[0] // len(sets))
    return float(sum(part[:, kept.cpu()].sum() for part, kept in zip(parts, sets)) / paid.sum())


def inspected(model: Any, tokenizer: Any, inputs: dict[str, Any], configs: Sequence[KVConfig], tokens: int, size: int):
    """Everything of one prompt, by the names it has in the file."""
    inspection = Inspection(model, configs, Picture(size))
    with inspection:
        alone = {"do_sample": False, "num_beams": 1, "use_cache": True, "return_dict_in_generate": False}
        output = model.generate(**inputs, max_new_tokens=tokens, **alone)
        answer = output[0, inputs["input_ids"].shape[1] :]
        prompt, picture = inspection.stats.prompt, inspection.picture
        layers = [inspection.stats.get(picture, layer) for layer in range(inspection.stats.n_layers)]
        found = {name: np.stack([layer[name] for layer in layers]) for name in layers[0]}
        coverage = [inspection.coverage(config) for config in configs] if inspection.steps[0] else []
        texts = [tokenizer.decode([token]) for token in inputs["input_ids"][0].tolist()]
        meta = {
            "schema": SCHEMA,
            "tokens": ["" if vision else text for text, vision in zip(texts, prompt.is_vision.tolist())],
            "answer": tokenizer.decode(answer, skip_special_tokens=True),
            "steps": len(inspection.steps[0]),
            "configs": [{"method": c.method, "variant": c.variant, "retention": c.retention} for c in configs],
        }
    extra = {"is_vision": prompt.is_vision.numpy(), "bins": bin_of(prompt.length, size).numpy()}
    extra |= {"shown": shown_positions(prompt.is_vision).numpy(), "coverage": np.array(coverage)}
    halves = {name: found[name].astype(np.float16) for name in ("map", "cosines")}
    return found | halves | extra, meta


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m kv_caches.inspect", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="checkpoint folder or hub id")
    parser.add_argument("--prompts", required=True, type=Path, help='lines of {"prompt": "...", "images": ["file"]}')
    parser.add_argument("--output", required=True, type=Path, help="folder, one <n>.npz per prompt")
    parser.add_argument("--methods", default=METHODS, help=f"for coverage, separated by commas (default: {METHODS})")
    parser.add_argument("--retention", type=float, nargs="+", default=[0.5, 0.2, 0.1, 0.05], help="shares kept")
    parser.add_argument("--new-tokens", type=int, default=32, help="of the answer (default: 32)")
    parser.add_argument("--size", type=int, default=64, help="bins of a map's side (default: 64)")
    parser.add_argument("--limit", type=int, help="use only the first prompts")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="auto", help="as in from_pretrained")
    return parser.parse_args(argv)


def _configs(args: argparse.Namespace) -> list[KVConfig]:
    for name in ("new_tokens", "size"):
        if getattr(args, name) < 2:
            raise ConfigError(f"--{name.replace('_', '-')} {getattr(args, name)}: a whole number from 2 is needed")
    if not args.methods.replace(",", " ").split():
        raise ConfigError(f"--methods {args.methods!r} names none")
    methods = [canonical(name, "--methods") for name in args.methods.replace(",", " ").split()]
    return list(sharing([KVConfig(method=method, retention=share) for share in args.retention for method in methods]))


def main(argv: list[str] | None = None) -> int:
    """Inspect every prompt; prints the files."""
    args = arguments(argv)
    try:
        configs = _configs(args)
        check(args)
        prompts = read_prompts(args.prompts, args.limit)
        processor, model = load(args)
        for number, inputs in enumerate(encode(processor, prompts, model.device)):
            arrays, meta = inspected(model, processor.tokenizer, inputs, configs, args.new_tokens, args.size)
            path = args.output / f"{number}.npz"
            meta |= {"model": args.model, "prompt": prompts[number]["prompt"]}
            np.savez_compressed(path, meta=json.dumps(meta), **arrays)
            print(path)
    except (ConfigError, UnsupportedError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

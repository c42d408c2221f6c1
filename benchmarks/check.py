"""Every promise about cost as a ratio within this run, next to its bound; exits with 1 when one is missed.

    python -m benchmarks.check            # about ten minutes on two quiet cores, 10 GB of memory
    python -m benchmarks.check decode     # only the checks whose name starts so

On a machine with a GPU the promises of card.py are checked instead, and these when they are named.
Run it on a quiet machine: ratios of times that were taken one after the other are no better than the machine is steady.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import math
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import psutil
import torch
from transformers.cache_utils import DynamicCache
from transformers.models.llama.modeling_llama import eager_attention_forward

from benchmarks import card, official, phases, shapes
from benchmarks.bounds import Bound, as_text
from kv_caches import KVConfig, attach, kernels, registry
from kv_caches.attention import LayerView
from kv_caches.errors import nearest
from kv_caches.prompt import Prompt
from kv_caches.statistics import ColumnSums, TextGrounding

TGV = KVConfig("tgv_kv", 0.05)
FULL = KVConfig()


def scoring() -> list[Bound]:
    """TGV-KV's scoring and eviction beside the prefill they ride on; 8 layers, d = 1024, N = 4096."""
    model, ids = shapes.build("cpu", "cpu"), shapes.prompt(4096, 1, "cpu")
    plain, added = [], []
    for _ in range(3):
        plain.append(phases.run(model, ids, None, 0).prefill)
        spent = phases.run(model, ids, TGV, 0, parts=True).spent
        added.append(spent["prefill scoring"] + spent["prefill eviction"])
    return [Bound("scoring and eviction / prefill, N = 4096", min(added) / min(plain), 0.03)]


def released() -> list[Bound]:
    """The released procedure's prefill beside ours, in a model of mostly matrix products, one of mostly attention."""
    bounds = []
    for shape, width, least in (("cpu", 1024, 5), ("cpu-attention", 512, 1)):
        model, ids = shapes.build(shape, "cpu"), shapes.prompt(4096, 1, "cpu")
        ours = min(phases.run(model, ids, TGV, 0).prefill for _ in range(2))
        model.set_attn_implementation("eager")
        eager = min(official.run(model, ids, TGV.retention, 0)[0] for _ in range(2))
        what = f"official-style prefill / ours, N = 4096, d = {width}"
        bounds.append(Bound(what, eager / ours, least, at_most=False))
    return [*bounds, _attention_alone()]


def _attention_alone() -> Bound:
    """Of the same comparison the part that differs: eager attention and head means, or SDPA and TGV-KV's scoring."""
    layer = _layer(4096)
    states = [states[None] for states in (layer.queries, layer.keys, layer.values)]
    mask = torch.full((4096, 4096), torch.finfo(torch.float32).min).triu(1)[None, None]
    module = torch.nn.Module().eval()
    module.num_key_value_groups = 1

    def ours() -> None:
        torch.nn.functional.scaled_dot_product_attention(*states, is_causal=True)
        TextGrounding().collect(layer)

    eager = _best(lambda: eager_attention_forward(module, *states, mask, layer.scaling)[1].mean(1), 3)
    return Bound("attention of that prefill alone, N = 4096", eager / _best(ours, 3), 5, at_most=False)


def growth() -> list[Bound]:
    """How scoring grows with N at 64 text rows: the exponent over 1k to 16k."""
    times = {n: _best(lambda n=n: TextGrounding().collect(_layer(n))) for n in (1024, 2048, 4096, 8192, 16384)}
    exponent = math.log(times[16384] / times[1024]) / math.log(16)
    return [Bound("growth of scoring with N, exponent 1k-16k", exponent, 1.15)]


def columns() -> list[Bound]:
    """Column sums beside the attention they add to."""
    layer = _layer(4096)
    states = [states[None] for states in (layer.queries, layer.keys, layer.values)]
    attend = partial(torch.nn.functional.scaled_dot_product_attention, *states, is_causal=True)
    ours, sdpa = [], []
    for _ in range(5):
        ours.append(_best(lambda: ColumnSums().collect(layer), 1))
        sdpa.append(_best(attend, 1))
    return [Bound("column sums / SDPA attention, N = 4096", statistics.median(ours) / statistics.median(sdpa), 1.2)]


def peak() -> list[Bound]:
    """Prefill's peak memory beside the plain forward's, and how it grows."""
    model, peaks = shapes.build("cpu-attention", "cpu"), {}
    for n in (8192, 16384):
        ids = shapes.prompt(n, 1, "cpu")
        for config in (None, TGV):
            peaks[n, config] = phases.run(model, ids, config, 0, weigh=True).peak_prefill
    exponent = math.log2(peaks[16384, TGV] / peaks[8192, TGV])
    return [
        Bound("prefill peak / plain forward's, N = 16k", peaks[16384, TGV] / peaks[16384, None], 1.05),
        Bound("growth of the peak with N, exponent 8k-16k", exponent, 1.05),
    ]


def kept() -> list[Bound]:
    """Bytes of the prompt's entries that stay allocated at 5 %, for every method that promises 5 %."""
    model, ids = shapes.build("smoke", "cpu"), shapes.prompt(4096, 1, "cpu")
    whole, shares = phases.run(model, ids, FULL, 0).kv_prompt, {}
    for name in registry.method_names():
        if name != "full" and registry.build(name, registry.variants(name)[0]).exact_budget:
            shares[name] = phases.run(model, ids, KVConfig(name, 0.05), 0).kv_prompt / whole
    worst = max(shares, key=lambda name: shares[name])
    return [
        Bound(f"allocated at 5 %, worst of {len(shares)} methods ({worst})", shares[worst], 0.052),
        Bound("growth of the process at 5 % / full, N = 16k", _resident(TGV) / _resident(FULL), 0.052),
    ]


def decode() -> list[Bound]:
    """Decoding at 5 % of 8k tokens beside the full cache, and the full cache beside transformers' own."""
    model, ids = shapes.build("cpu-attention", "cpu"), shapes.prompt(8192, 4, "cpu")
    configs = {"stock": None, "full": FULL, "tgv": TGV}
    steps, inner, runs = {name: [] for name in configs}, {}, {}
    for _ in range(2):
        for name, config in configs.items():
            runs[name] = phases.run(model, ids, config, 48)
            steps[name] += runs[name].steps
    for name in ("full", "tgv"):
        spent = phases.run(model, ids, configs[name], 16, parts=True).spent
        inner[name] = spent["decode attention"] + spent["decode cache"]
    step = {name: statistics.median(seconds) for name, seconds in steps.items()}
    whole = {name: runs[name].prefill + 512 * step[name] for name in configs}
    return [
        Bound("attention and cache per token, 5 % / full, N = 8k", inner["tgv"] / inner["full"], 0.1),
        Bound("decode step, full cache / stock generate", step["full"] / step["stock"], 1.0),
        Bound("end to end, 5 % / full, N = 8k, batch 4, 512 tokens", whole["full"] / whole["tgv"], 1.526, False),
        Bound("decode step, full / 5 %, N = 8k, batch 4", step["full"] / step["tgv"], 1.0, False),
    ]


CHECKS = (scoring, released, growth, columns, peak, kept, decode)


def _layer(n: int) -> LayerView:
    """Random states of 16 heads of 64, a prompt with 64 text tokens."""
    vision = torch.ones(n, dtype=torch.bool)
    vision[:32] = vision[-32:] = False
    queries, keys, values = torch.randn(3, 16, n, 64)
    return LayerView(queries, keys, values, Prompt(vision), 64**-0.5)


@torch.inference_mode()
def _best(function: Callable[[], object], repeats: int = 5) -> float:
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


@torch.inference_mode()
def _resident(config: KVConfig) -> int:
    """Bytes that the process holds more after a prefill of 16k tokens, its cache still there."""
    model, ids = shapes.build("cpu-attention", "cpu"), shapes.prompt(16384, 1, "cpu")
    phases.run(model, ids, config, 0)
    before, cache = _rss(), DynamicCache()
    with attach(model, config):
        model(input_ids=ids, use_cache=True, logits_to_keep=1, **{kernels.cache_argument(model): cache})
    return max(0, _rss() - before)


def _rss() -> int:
    """Bytes of the process after what is free went back to the system."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):  # of glibc
        libc.malloc_trim(0)
    return psutil.Process().memory_info().rss


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    gpu = torch.cuda.is_available()
    checks = (*CHECKS, *card.CHECKS) if gpu else CHECKS
    names = [check.__name__ for check in checks]
    parser.add_argument("only", nargs="*", default=[], help=", ".join(names))
    options = parser.parse_args(argv)
    for asked in options.only:
        if not any(name.startswith(asked) for name in names):
            parser.error(f"there is no check {asked!r}; there are {', '.join(names)}.{nearest(asked, names)}")
    if options.only:
        checks = tuple(check for check in checks if check.__name__.startswith(tuple(options.only)))
    elif gpu:
        checks = card.CHECKS
    bounds: list[Bound] = []
    for check in checks:
        print(f"measuring: {check.__name__}", file=sys.stderr, flush=True)
        bounds += check()
    print(as_text(bounds))
    where = torch.cuda.get_device_name() if gpu else f"{torch.get_num_threads()} threads"
    print(f"{where}, torch {torch.__version__}")
    return 0 if all(bound.met for bound in bounds) else 1


if __name__ == "__main__":
    sys.exit(main())

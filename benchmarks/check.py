"""Every promise about cost, next to its bound.

    python -m benchmarks.check            # about five minutes on two quiet cores, 8 GB of memory
    python -m benchmarks.check decode     # only the checks whose name starts so

Work and memory are counted: the same on every machine. Times are compared in pairs, taken in turn, and repeated until
the 95 % interval of their median lies on one side of the bound, or the time is over. A repeat during which other
programs took processors, or the machine changed its speed, does not count. Exit status: 0 all promises hold, 1 one is
missed, 3 none is missed and one could not be decided; the last lines say why.

On a machine with a GPU the promises of card.py are checked instead, and these when they are named.
"""

from __future__ import annotations

import argparse
import math
import sys
from contextlib import suppress

import torch

from benchmarks import card, counted, machine, timed
from benchmarks.bounds import Finding, as_text, status
from benchmarks.paired import Timed, measure
from kv_caches.errors import nearest

CHECKS = (
    counted.work,
    counted.peak,
    counted.kept,
    timed.scoring,
    timed.released,
    timed.attention,
    timed.growth,
    timed.decode,
)


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    gpu = torch.cuda.is_available()
    checks = (*CHECKS, *card.CHECKS) if gpu else CHECKS
    options = _parser([check.__name__ for check in checks]).parse_args(argv)
    if options.only:
        checks = tuple(check for check in checks if check.__name__.startswith(tuple(options.only)))
    elif gpu:
        checks = card.CHECKS
    findings: list[Finding] = []
    for check in checks:
        print(f"measuring: {check.__name__}", file=sys.stderr, flush=True)
        made = check()
        findings += measure(made, options.seconds) if isinstance(made, Timed) else made
    print(as_text(findings))
    where = f"{machine.processor('cuda' if gpu else 'cpu')}, {torch.get_num_threads()} threads"
    print(f"{where}, torch {torch.__version__}")
    return status(findings)


def _parser(names: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def name(text: str) -> str:
        if not any(name.startswith(text) for name in names):
            message = f"there is no check {text!r}; there are {', '.join(names)}.{nearest(text, names)}"
            raise argparse.ArgumentTypeError(message)
        return text

    parser.add_argument("only", nargs="*", type=name, default=[], help=", ".join(names))
    most = "most that one check of times repeats for, after a warm-up (default: 90)"
    parser.add_argument("--seconds", type=_seconds, default=90.0, help=most)
    return parser


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r}: a number of seconds above 0 is needed")


if __name__ == "__main__":
    sys.exit(main())

"""python -m kv_caches list: the registered methods, what they need, and how they decode."""

from __future__ import annotations

import argparse
import sys

from . import listing
from .config import KNOWN_VARIABLES
from .errors import ConfigError


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    variables = "\n".join(f"  {name:<22}{meaning}" for name, meaning in KNOWN_VARIABLES.items())
    parser = argparse.ArgumentParser(
        prog="python -m kv_caches",
        description="KV-cache eviction for vision-language models.",
        epilog=f"environment of a run:\n{variables}\n\nsee also: python -m kv_caches.profile --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    command = commands.add_parser("list", help="print every registered method", description=listing.__doc__)
    command.add_argument("--markdown", action="store_true", help="as a Markdown table")
    args = parser.parse_args(argv)
    try:
        rows = listing.rows()
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(listing.markdown(rows) if args.markdown else listing.aligned(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

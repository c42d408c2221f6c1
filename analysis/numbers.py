"""Numbers as they are shown: a dash where there is none."""

from __future__ import annotations

import math


def number(value: float, form: str, unit: str = "") -> str:
    """A number in that format with its unit; NaN as a dash."""
    return "-" if math.isnan(value) else f"{value:{form}}{unit}"

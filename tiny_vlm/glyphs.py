"""The baked bitmaps: characters of three fonts, and the shapes.

The characters were drawn from the DejaVu fonts (see `GLYPHS_LICENSE`) by `bake_glyphs.py`.
"""

from pathlib import Path

import numpy as np

CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:"
GLYPH_SIZE = 12
SHAPES = ("circle", "square", "triangle", "star", "diamond", "cross")
SHAPE_SIZE = 26
GLYPHS_PATH = Path(__file__).parent / "glyphs.npz"

STAR_POINTS = ((13, 0), (16, 9), (25, 9), (18, 15), (21, 25), (13, 19), (5, 25), (8, 15), (1, 9), (10, 9))


def load_glyphs() -> np.ndarray:
    """Returns (fonts, characters, 12, 12) uint8 coverage."""
    with np.load(GLYPHS_PATH) as archive:
        return archive["glyphs"]


def shape_bitmaps() -> np.ndarray:
    """Returns (shapes, 26, 26) uint8 coverage, 0 or 255, computed in integers only."""
    y, x = np.mgrid[0:SHAPE_SIZE, 0:SHAPE_SIZE]
    u, v = 2 * x - SHAPE_SIZE + 1, 2 * y - SHAPE_SIZE + 1  # doubled distances from the centre, odd integers
    masks = {
        "circle": u * u + v * v <= 25 * 25,
        "square": (abs(u) <= 21) & (abs(v) <= 21),
        "triangle": 2 * abs(u) <= v + 25,
        "star": _inside(STAR_POINTS, x, y),
        "diamond": abs(u) + abs(v) <= 25,
        "cross": (abs(u) <= 7) | (abs(v) <= 7),
    }
    return np.stack([masks[name] for name in SHAPES]).astype(np.uint8) * 255


def _inside(points: tuple[tuple[int, int], ...], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Even-odd rule: which pixels lie inside a polygon."""
    inside = np.zeros(x.shape, dtype=bool)
    for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1], strict=True):
        crosses = (y0 > y) != (y1 > y)
        side = (x - x0) * (y1 - y0) - (x1 - x0) * (y - y0)
        inside ^= crosses & (side < 0 if y1 > y0 else side > 0)
    return inside

"""Draws the letters, digits and the colon of three DejaVu fonts once, into `glyphs.npz`.

The generator reads only the baked bitmaps, so its pictures do not depend on a font renderer.
Run as `python -m tiny_vlm.bake_glyphs` (needs matplotlib, which ships the fonts); the result is committed.
"""

import numpy as np
from matplotlib import get_data_path
from PIL import Image, ImageDraw, ImageFont

from tiny_vlm.glyphs import CHARACTERS, GLYPH_SIZE, GLYPHS_PATH

FONTS = ("DejaVuSans-Bold", "DejaVuSerif", "DejaVuSansMono")
FONT_PIXELS = {"DejaVuSans-Bold": 12, "DejaVuSerif": 12, "DejaVuSansMono": 14}


def bake(font_name: str) -> np.ndarray:
    """Returns (characters, 12, 12) uint8 coverage, each character centred in its box."""
    font = ImageFont.truetype(f"{get_data_path()}/fonts/ttf/{font_name}.ttf", FONT_PIXELS[font_name])
    boxes = []
    for character in CHARACTERS:
        box = Image.new("L", (GLYPH_SIZE, GLYPH_SIZE))
        left, top, right, bottom = font.getbbox(character)
        corner = ((GLYPH_SIZE - right - left) // 2, (GLYPH_SIZE - bottom - top) // 2)
        ImageDraw.Draw(box).text(corner, character, fill=255, font=font)
        boxes.append(np.asarray(box))
    return np.stack(boxes)


if __name__ == "__main__":
    np.savez_compressed(GLYPHS_PATH, glyphs=np.stack([bake(name) for name in FONTS]))

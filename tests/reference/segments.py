"""Which positions are vision, and what the released TGV-KV code takes them for."""

from __future__ import annotations

from collections.abc import Sequence


def vision_positions(vision: Sequence[bool]) -> list[int]:
    """Positions that hold an image or video token."""
    return [position for position, is_vision in enumerate(vision) if is_vision]


def text_positions(vision: Sequence[bool]) -> list[int]:
    """All the other positions."""
    return [position for position, is_vision in enumerate(vision) if not is_vision]


def official_block(vision: Sequence[bool]) -> tuple[int, int]:
    """First vision token of the counted id and first plus count: right only for one contiguous image."""
    positions = vision_positions(vision)
    return positions[0], positions[0] + len(positions)


def text_rows_seeing_vision(vision: Sequence[bool]) -> list[int]:
    """Text positions with at least one vision token before them."""
    return [row for row in text_positions(vision) if any(vision[:row])]

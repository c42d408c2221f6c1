"""Random choices that are the same in every Python version."""

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Rng:
    """Draws built on `random.Random(seed).random()` alone.

    Python promises that stream for all versions; it does not promise those of `choice`, `sample` or `shuffle`.
    """

    def __init__(self, name: str):
        digest = hashlib.sha256(name.encode()).digest()
        self._random = random.Random(int.from_bytes(digest[:8], "big")).random

    def below(self, stop: int) -> int:
        """An integer in [0, stop)."""
        return int(self._random() * stop)

    def between(self, low: int, high: int) -> int:
        """An integer in [low, high], both ends included."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different items in random order (partial Fisher-Yates)."""
        pool = list(items)
        for i in range(count):
            j = i + self.below(len(pool) - i)
            pool[i], pool[j] = pool[j], pool[i]
        return pool[:count]

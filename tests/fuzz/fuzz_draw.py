"""Choices by a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """Choices that are the same in every release of Python, which promises that of ``random()`` alone."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, limit: int) -> int:
        return int(self._random.random() * limit)

    def between(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def of(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def some(self, choices: Sequence[T], count: int) -> list[T]:
        """So many of them, none twice, in the order of `choices`."""
        left = list(range(len(choices)))
        taken = [left.pop(self.below(len(left))) for _ in range(min(count, len(choices)))]
        return [choices[n] for n in sorted(taken)]

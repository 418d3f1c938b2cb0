"""A copy between two strided boxes, as kernels that move elements make it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hybrid_infer.backends.native._size import Dim


@dataclass
class Box:
    """Sizes, and for the operand and the result, by number, strides and the place of the first element.

    ``picked``: the axis along which the operand is read at places given by the second operand, whose length is
    ``length`` in the operand.
    """

    sizes: list[Dim]
    source: int
    read: list[Dim]
    result: int
    written: list[Dim]
    start: Dim = 0
    goal: Dim = 0
    picked: int | None = None
    length: Dim = 0

    def merged(self) -> Box:
        """Without axes of size 1, neighbours merged that follow each other on both sides."""
        kept = [i for i, size in enumerate(self.sizes) if size != 1 or i == self.picked]
        sizes: list[Dim] = []
        read: list[Dim] = []
        written: list[Dim] = []
        picked = None
        for i in kept:
            joins = (
                sizes and i != self.picked and picked != len(sizes) - 1
                and read[-1] == self.read[i] * self.sizes[i] and written[-1] == self.written[i] * self.sizes[i]
            )  # fmt: skip
            if joins:
                sizes[-1], read[-1], written[-1] = sizes[-1] * self.sizes[i], self.read[i], self.written[i]
                continue
            if i == self.picked:
                picked = len(sizes)
            sizes.append(self.sizes[i])
            read.append(self.read[i])
            written.append(self.written[i])
        found = (sizes or [1], self.source, read or [1], self.result, written or [1])
        return Box(*found, self.start, self.goal, picked, self.length)

    def lanes(self, most: int) -> int:
        """How many neighbours may move together."""
        if self.read[-1] != 1 or self.written[-1] != 1 or self.picked == len(self.sizes) - 1:
            return 1
        steps = [self.sizes[-1], *self.read[:-1], *self.written[:-1], self.start, self.goal]
        while most > 1 and any(each % most != 0 for each in steps):
            most //= 2
        return most

    def moved(self, axes: Sequence[int], term: Callable[[Dim], str]) -> list[str]:
        """Statements that move ``from`` and ``to`` to a place along these axes, which ``rest`` counts."""
        found = []
        for axis in reversed(axes):
            size = term(self.sizes[axis])
            found += [
                f"  {{ const I c = rest % {size};",
                f"    from += c * {term(self.read[axis])};",
                f"    to += c * {term(self.written[axis])}; }}",
                f"  rest /= {size};",
            ]
        return found

    def crossed(self) -> int | None:
        """The axis whose neighbours lie side by side in the operand, where those of the last one do so in the result.
        """
        if self.picked is not None or self.written[-1] != 1 or self.read[-1] in (0, 1) or 1 not in self.read:
            return None
        return self.read.index(1)

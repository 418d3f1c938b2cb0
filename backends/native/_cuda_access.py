"""How a kernel finds its operands: strides in the axes that are left when neighbours with one pattern are merged.

An operand that is spread along an axis has stride 0 there. Sizes that are numbers stand in the source; the others are
arguments of the kernel, in 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hybrid_infer.backends.native import _size
from hybrid_infer.backends.native._cuda_expressions import STORED
from hybrid_infer.backends.native._cuda_tilings import Tiling
from hybrid_infer.backends.native._plan import BYTES, Step
from hybrid_infer.backends.native._size import Atom, Dim, Size, largest, product, smallest
from hybrid_infer.backends.native._window import Window, windows

#: A thread moves so many bytes at a time.
VECTOR = 16

#: Up to so many elements are indexed in 32 bits: a stride of the whole grid past the last one must not overflow.
_NARROW = 2**30


@dataclass
class Kernel:
    """One source with its entry points, and how to call them: pointers, then the values of `numbers`, in 64 bits.

    ``entries`` map (elements per thread, 64-bit indices) to names. ``count``: elements of the space; ``inner``: those
    of its last merged axis, a multiple of the elements per thread; ``rows``, ``width``: of steps with rows.
    """

    source: str
    entries: dict[tuple[int, bool], str]
    pointers: list[str]
    numbers: list[Size]
    count: Dim
    inner: Dim
    rows: Dim = 1
    width: Dim = 0
    shared: int = 0
    #: Threads of a block, where only one number will do.
    threads: int = 0
    #: Is ``cached`` the last argument?
    cached: bool = False
    #: Bytes of shared memory for each of ``width``: for all calls, or only for those that are ``cached``.
    each: int = 0
    #: Does a block take one of ``rows`` at a time? Else each thread takes one (``rows`` is 1 where it is ``count``).
    blocks: bool = False
    #: Where there are several, in place of ``entries``, ``rows``, ``threads`` and ``shared``. One entry may serve two.
    tilings: list[Tiling] = field(default_factory=list)
    #: What computes the step, in words, where that is a matter of choice.
    what: str = ""
    #: What offsets in windows may add up to, beyond ``count``.
    extent: Dim = 0

    @property
    def names(self) -> list[str]:
        """All entry points."""
        return [*self.entries.values(), *dict.fromkeys(each.entry for each in self.tilings)]

    def to_json(self) -> dict[str, Any]:
        """Everything but the source: what launching it takes."""
        return {
            "entries": [[width, wide, name] for (width, wide), name in self.entries.items()],
            "pointers": self.pointers,
            "numbers": [_size.to_json(each) for each in self.numbers],
            "sizes": [_size.to_json(each) for each in (self.count, self.inner, self.rows, self.width, self.extent)],
            "constants": [self.shared, self.threads, int(self.cached), self.each, int(self.blocks)],
            "tilings": [[each[0], _size.to_json(each.rows), *each[2:]] for each in self.tilings],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Kernel:
        """What `to_json` wrote, without a source. Raises ValueError, KeyError or TypeError for anything else."""
        shared, threads, cached, each, blocks = data["constants"]
        count, inner, rows, width, extent = map(_size.from_json, data["sizes"])
        numbers = [size for size in map(_size.from_json, data["numbers"]) if not isinstance(size, int)]
        entries = {(lanes, bool(wide)): name for lanes, wide, name in data["entries"]}
        tilings = [Tiling(name, _size.from_json(rows), *more) for name, rows, *more in data["tilings"]]
        return Kernel(
            "", entries, list(data["pointers"]), numbers, count, inner, rows, width, shared, threads, bool(cached),
            each, bool(blocks), tilings, extent=extent,
        )  # fmt: skip

    def arguments(self, symbols: Mapping[Atom, int]) -> list[int]:
        return [_size.evaluate(each, symbols) for each in self.numbers]

    def wide(self, symbols: Mapping[Atom, int]) -> bool:
        """Does this call need indices of 64 bits?"""
        return max(_size.evaluate(each, symbols) for each in (self.count, self.extent)) > _NARROW

    def entry(self, symbols: Mapping[Atom, int]) -> tuple[int, bool]:
        """Which entry point serves this call; all pointers are multiples of `VECTOR`."""
        wide, inner = self.wide(symbols), _size.evaluate(self.inner, symbols)
        fits = [key for key in self.entries if inner % key[0] == 0 and (key[1] or not wide)]
        return max(fits, key=lambda key: (key[0], not key[1]))


@dataclass
class Access:
    """The merged axes of a space, and the strides of each operand in them."""

    sizes: list[Dim]
    strides: list[list[Dim]]
    numbers: list[Size] = field(default_factory=list)

    def term(self, size: Dim) -> str:
        """A size in the source: the number itself, or the argument that brings it."""
        if isinstance(size, int):
            return f"(I){size}"
        if size not in self.numbers:
            self.numbers.append(size)
        return f"(I)n{self.numbers.index(size)}"

    def offsets(self, operands: Sequence[int]) -> list[str]:
        """Statements that compute ``o<k>``, the offset of operand k, from ``at``, the place in the space."""
        if not operands:
            return []
        lines, last = ["I rest = at;"], len(self.sizes) - 1
        lines.extend(f"I o{k} = 0;" for k in operands)
        for axis in range(last, -1, -1):
            used = [k for k in operands if self.strides[k][axis] != 0]
            if axis == 0:
                lines.extend(f"o{k} += rest{self._times(k, axis)};" for k in used)
                break
            size = self.term(self.sizes[axis])
            if used:
                lines.append(f"{{ const I c = rest % {size};")
                lines.extend(f"  o{k} += c{self._times(k, axis)};" for k in used)
                lines.append("}")
            lines.append(f"rest /= {size};")
        return lines

    def _times(self, operand: int, axis: int) -> str:
        stride = self.strides[operand][axis]
        return "" if stride == 1 else f" * {self.term(stride)}"

    def straight(self, operand: int) -> bool:
        """Does the operand lie as the space does, so that its offset is the place itself?"""
        return self.strides[operand] == _size.strides(self.sizes)


def access(space: Sequence[Dim], views: Sequence[Sequence[Dim]], windows: Sequence[Window | None] = ()) -> Access:
    """Merge the axes of `space` along which every operand behaves alike.

    An operand is read in its view, a shape that is spread over the space, or where it has one in its window, whose axes
    are those of the space.
    """
    strides = [_spread(view, space) for view in views]
    for i, each in enumerate(windows):
        if each is not None:
            strides[i] = list(each.strides)
    groups: list[list[int]] = []
    for axis, size in enumerate(space):
        if size == 1:
            continue
        before = groups[-1][-1] if groups else None
        if before is not None and all(own[before] == own[axis] * size for own in strides):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    sizes = [product(space[axis] for axis in group) for group in groups] or [1]
    return Access(sizes, [[own[group[-1]] for group in groups] or [1] for own in strides])


def _spread(view: Sequence[Dim], space: Sequence[Dim]) -> list[Dim]:
    """The strides of a view in the axes of a space: none where it is spread."""
    padded = [*([1] * (len(space) - len(view))), *view]
    found: list[Dim] = []
    for axis, (size, whole) in enumerate(zip(padded, space, strict=True)):
        step = product(padded[axis + 1 :])
        if size == whole:
            found.append(step)
        elif size == 1:
            found.append(0)
        else:  # 1 or the whole, which the call will tell
            found.append(step * smallest(size - 1, 1))
    return found


def lanes(dtypes: Sequence[str], inner: Dim, steady: bool, windows: Sequence[Window | None] = ()) -> list[int]:
    """How many elements a thread may take at a time: as many of the widest type as one load holds, where they fit.

    Which of several a call takes its sizes decide: where they are known, one is compiled. In each of `windows` as many
    neighbours must lie side by side, from a multiple of their number on.
    """
    widest = max((BYTES[dtype] for dtype in dtypes), default=4)
    most = min(VECTOR // widest, 8) or 1
    seen = [each for each in windows if each is not None]
    steps = [*(each.start for each in seen), *(step for each in seen for step in each.strides if step != 1)]
    while most > 1 and any(step % most != 0 for step in steps):
        most //= 2
    if not steady or most == 1:
        return [1]
    if isinstance(inner, int):
        while inner % most:
            most //= 2
        return [most]
    return [most, 1]


def indices(count: Dim, extent: Dim = 0) -> list[bool]:
    """Which widths of index are needed: 32 bits where that is enough, 64 where it may not be."""
    if isinstance(count, int) and isinstance(extent, int):
        return [max(count, extent) > _NARROW]
    return [False, True]


def extent(step: Step) -> Dim:
    """How far offsets in the windows of a step reach, or more."""
    total: Dim = 0
    for window in windows(step):
        for size, stride in zip(*window[:2], strict=True) if window is not None else ():
            total = total + size * largest(stride, -stride)
    return total


def declaration(dtypes: Sequence[str], outputs: int, numbers: Sequence[Any]) -> str:
    """The parameters of an entry point, the last `outputs` pointers written to."""
    inputs = len(dtypes) - outputs
    pointers = [
        f"{'const ' if i < inputs else ''}{STORED[dtype]}* __restrict__ p{i}" for i, dtype in enumerate(dtypes)
    ]
    return ", ".join([*pointers, *(f"long long n{i}" for i in range(len(numbers)))])

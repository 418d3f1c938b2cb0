"""CUDA C for a step over rows that threads hold in registers: each element is read once, and all loads are under way.

A warp takes a row that fits into its registers, and no barrier is needed; else a block does, or a cluster of blocks,
which write what they found into each other's shared memory ("distributed shared memory", from compute capability 9.0
on). What stands behind the row is loaded in front of its statistics, which would else be waited for twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hybrid_infer.backends.native._cuda_access import Kernel, declaration, indices
from hybrid_infer.backends.native._cuda_body import head, operands_of
from hybrid_infer.backends.native._cuda_clusters import gather
from hybrid_infer.backends.native._cuda_rows import REDUCE, Rows, indent
from hybrid_infer.backends.native._cuda_tilings import Tiling, kept
from hybrid_infer.backends.native._plan import BYTES, Plan, Step
from hybrid_infer.backends.native._size import Dim, product

_WARP = 32

#: Warps of a block at most: with more, a thread could have too few registers.
_WARPS = 16

#: Rows that a block takes at a time where a warp takes one.
_SIDE_BY_SIDE = 4

#: Bytes of a row that a thread holds at most, and where its block has several warps, if there are enough of them.
_HELD, _SHARED_OUT = 128, 64

#: From this length on a row is spread over so many blocks, where rows are few or longer than what a block holds.
_SPREAD = ((16384, 8), (8192, 4))

#: Registers of a thread for its part of the row and for what is loaded early; the rest is loaded late.
_REGISTERS = 80

#: What the barriers of a cluster cost, in elements that a multiprocessor could move meanwhile (see `Tiling`).
_BARRIERS = 4096


class Layout(NamedTuple):
    """A row over ``blocks`` of ``warps`` whole warps: each thread has ``chunks`` times ``lanes`` neighbours."""

    lanes: int
    chunks: int
    warps: int
    blocks: int


def held_rows(plan: Plan, step: Step, name: str, clusters: bool) -> Kernel | None:
    """The kernel of a row step, whose entry points begin with `name`; None for rows that are too long or of any length.

    Dynamic shared memory: the statistics of each warp of a row, twice.
    """
    made = _Held(plan, step)
    lanes = made.lanes()[0]
    if not isinstance(made.width, int) or made.width == 0 or made.reach.sizes[-1] % lanes != 0:
        return None
    found = layouts(made.width, lanes, BYTES[made.real], clusters)
    if not found:
        return None
    made.spread = spread = any(each.blocks > 1 for each in found)
    lines = made.statements_for(max(each.chunks for each in found) * lanes)
    parameters = declaration([*made.types, *made.stored], len(made.stored), made.reach.numbers)
    pointers = [f"p{i}" for i in range(len(made.types) + len(made.stored))]
    passed = ", ".join([*pointers, *(f"n{i}" for i in range(len(made.reach.numbers)))])
    text = "\n".join(
        [
            REDUCE, gather(spread),
            f"template <class I, int V, int N, int W, int C> __device__ inline void {name}_body({parameters}) {{",
            "  extern __shared__ __align__(16) unsigned char hi_shared[];",
            f"  {made.c}* slots = ({made.c}*)hi_shared;",
            f"  const I width = {made.width_text};",
            f"  const I rows = {made.count_text} / width;",
            "  const bool full = (I)N * V * W * C * 32 == width;",
            "  const int several = W == 1 ? (int)blockDim.x >> 5 : 1, rank = (int)blockIdx.x % C;",
            "  const I thread = W == 1 ? threadIdx.x & 31 : threadIdx.x;",
            "  const I first = (I)(blockIdx.x / C) * several + (W == 1 ? threadIdx.x >> 5 : 0);",
            *(("  if constexpr (C > 1) hi_begin();",) if spread else ()),
            "  for (I line = first; line < rows; line += (I)(gridDim.x / C) * several) {",
            *indent(lines, 2),
            "  }",
            "}",
        ]
    )  # fmt: skip
    rows, tilings = product(step.attributes["space"][: step.attributes["axis"]]), list[Tiling]()
    for wide in indices(made.count, made.extent):
        prefix, offered = f"{name}_{'l' if wide else 'i'}{lanes}", dict[str, tuple[Layout, list[Tiling]]]()
        for each in found:
            entry = f"{prefix}w{each.warps}c{each.blocks}"
            offered[entry] = each, _tilings(entry, each, rows, made.width, BYTES[made.real], not wide)
        serving = kept([tiling for _, own in offered.values() for tiling in own])
        tilings += serving
        for entry in dict.fromkeys(tiling.entry for tiling in serving):
            each, own = offered[entry]
            cluster = f"__cluster_dims__({each.blocks}) " if each.blocks > 1 else ""
            # Left alone, the compiler takes so few registers for a block of a few warps that it spills.
            bounds = f"{max(tiling.threads for tiling in own)}{', 1' if each.warps > 1 else ''}"
            arguments = f"{'long long' if wide else 'int'}, {lanes}, {each.chunks}, {each.warps}, {each.blocks}"
            text += (
                f'\nextern "C" __global__ void {cluster}__launch_bounds__({bounds}) {entry}({parameters}) '
                f"{{ {name}_body<{arguments}>({passed}); }}"
            )
    longest = max(each.blocks for each in found)
    what = f"rows of {made.width}, where they are few, over {longest} blocks that work together" if spread else ""
    return Kernel(
        head(text) + "\n" + text + "\n", {}, [*made.types, *made.stored], made.reach.numbers, made.count,
        made.reach.sizes[-1], width=made.width, tilings=tilings, what=what, extent=made.extent,
    )  # fmt: skip


def layouts(width: int, lanes: int, size: int, clusters: bool) -> list[Layout]:
    """How rows of so many elements of `size` bytes are held, `lanes` elements at a time; none where they are not.

    >>> layouts(768, 8, 4, clusters=True)  # by a warp
    [Layout(lanes=8, chunks=3, warps=1, blocks=1)]
    >>> layouts(1152, 8, 4, clusters=True)
    [Layout(lanes=8, chunks=1, warps=5, blocks=1)]
    >>> layouts(20480, 4, 4, clusters=True), layouts(20480, 4, 4, clusters=False)
    ([Layout(lanes=4, chunks=4, warps=5, blocks=8)], [])
    """
    spread = next((blocks for least, blocks in _SPREAD if width >= least), 1) if clusters else 1
    found = [_layout(width, lanes, size, blocks) for blocks in sorted({1, spread})]
    return [each for each in found if each is not None]


def _layout(width: int, lanes: int, size: int, blocks: int) -> Layout | None:
    loads = -(-width // (lanes * blocks * _WARP))  # of a whole warp
    most = _HELD // (lanes * size)
    if blocks == 1 and loads <= most:
        return Layout(lanes, loads, 1, 1)
    few = [(-(-loads // warps), warps) for warps in range(1, _WARPS + 1)]
    fitting = [each for each in few if each[0] <= max(_SHARED_OUT // (lanes * size), 1)]
    fitting = fitting or [each for each in few if each[0] <= most]
    if not fitting:
        return None
    chunks, warps = min(fitting, key=lambda each: (each[0] * each[1], each[1]))
    return Layout(lanes, chunks, warps, blocks)


def _tilings(entry: str, layout: Layout, rows: Dim, width: int, size: int, narrow: bool) -> list[Tiling]:
    if layout.warps == layout.blocks == 1:
        several = _SIDE_BY_SIDE
        return [
            Tiling(entry, rows, _WARP, 0, width * 5 // 4, 2 * width, narrow),
            Tiling(entry, (rows + several - 1) // several, several * _WARP, 0, several * width, 3 * width, narrow),
        ]
    threads, shared = layout.warps * _WARP, 2 * layout.warps * layout.blocks * size
    own, more = width // layout.blocks, _BARRIERS if layout.blocks > 1 else 0
    cost, alone = own + more // 16, 2 * own + more
    return [Tiling(entry, rows * layout.blocks, threads, shared, cost, alone, narrow, layout.blocks)]


class _Held(Rows):
    """Chunk i of a thread as ``held[i]``, and operand k of it, where it is loaded early, as ``q<k>[i]``."""

    spread: bool
    late: list[int]
    early: list[int]
    again: list[str]

    def statements_for(self, elements: int) -> list[str]:
        """The statements of a row of which a thread has at most so many elements."""
        found = [self.at["results"][i] for i in self._results(early=False)]
        self.late, self.again = operands_of(self.at["code"], found), self._again(found)
        if self.again and "x[j]" not in self.again[0]:
            self.late = sorted({*self.late, *self._sources()})
        self.early = self._sources()
        used = BYTES[self.real] + sum(self._bytes(k) for k in self.early if k in self.late)
        for k in self.late:
            if k not in self.early and (used + self._bytes(k)) * elements <= 4 * _REGISTERS:
                used += self._bytes(k)
                self.early.append(k)
        return self.statements()

    def _again(self, found: Sequence[object]) -> list[str]:
        """Statements that give what stands in front of the row anew, element j of it; none where nothing reads it.

        Mostly that is the element of the row itself.
        """
        arguments = [*(each for _, given, _, _ in self.at["code"] for each in given), *found]
        read, source = [each[1] for each in arguments if each[0] == "early"], self.at["source"]
        if not read:
            return []
        lines = self.body.lines(self.at["before"], "b")
        if source[0] == "at" and all(each == source for each in read):
            name = f"b{source[1]}"
            if self.body.kinds[name] == self.real:
                return [f"const {self.c} {name} = x[j];"]
        return lines or [";"]

    def _bytes(self, operand: int) -> int:
        """What an operand takes in registers for each element."""
        return 0 if self.body.spread(operand) else BYTES[self.types[operand]]

    def _loop(self, lines: Sequence[str]) -> list[str]:
        """The chunks of a thread, the first element of each at ``at`` in the space and at ``c`` in the row."""
        return [
            "#pragma unroll",
            "for (int i = 0; i < N; ++i) {",
            "  const I c = ((I)(i * C + rank) * (W * 32) + thread) * V;",
            "  if (full || c < width) {",
            "    const I at = base + c;",
            f"    {self.c}* const x = held[i];",
            *indent(lines, 2),
            "  }",
            "}",
        ]

    def _bound(self, operands: Sequence[int]) -> list[str]:
        return [f"const auto& a{k} = q{k}[i];" for k in operands if k in self.early]

    def _first(self) -> list[str]:
        before = self._before()
        declared, assigned, written = self._keep(self._results(early=True), "b")
        join, start, functor = self._statistic()
        each = [*before, *assigned, f"one = {join};"]
        kinds = [self.kinds[k] if self.body.spread(k) else f"Pack<{self.kinds[k]}, V>" for k in self.early]
        places = self.body.loads([], self.kinds, self._places(early=True))
        return [
            "const I base = line * width;",
            f"{self.c} held[N][V];",
            *(f"{kind} q{k}[N];" for k, kind in zip(self.early, kinds, strict=True)),
            *self._loop([*self.body.loads(self.early, self.kinds), *(f"q{k}[i] = a{k};" for k in self.early)]),
            f"{self.c} one = {start};",
            *self._loop([*self._bound(self._sources()), *places, *declared, *self._each(each), *written]),
            *(("if constexpr (C > 1) { if (line == first) { __syncwarp(); hi_await(); } }",) if self.spread else ()),
            f"one = hi_gather<W, C>(one, {start}, {functor}(), slots);",
            *self._centre(),
        ]

    def _second(self) -> list[str]:
        return [
            f"{self.c} two = {self._number(0.0)};",
            *self._loop(self._each([f"two += {self._term()};"])),
            f"two = hi_gather<W, C>(two, {self._number(0.0)}, HiSum(), slots + W * C);",
        ]

    def _third(self) -> list[str]:
        scale, result = self._normalised()
        code = self.body.lines(self.at["code"], "t")
        declared, assigned, written = self._keep(self._results(early=False), "t")
        each = [f"const {self.c} row = {result};", *self.again, *code, *assigned]
        loads = self.body.loads([k for k in self.late if k not in self.early], self.kinds, self._places(early=False))
        return [
            f"const {self.c} scale = {scale};",
            *self._loop([*self._bound(self.late), *loads, *declared, *self._each(each), *written]),
        ]

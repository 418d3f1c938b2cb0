"""CUDA C for a step over rows: a block takes a row at a time.

The first pass computes the elements, keeps them in shared memory where a row fits, stores what is read elsewhere and
gathers the first statistic (sum or maximum); the second the other one (squares about the mean, or exponentials); the
third normalises, runs what stands behind the row and stores. A row that does not fit is computed anew in each pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_access import Kernel, access, declaration, extent, indices, lanes
from hybrid_infer.backends.native._cuda_body import Body, head, operands_of, uses_early
from hybrid_infer.backends.native._cuda_entries import entry_points
from hybrid_infer.backends.native._cuda_expressions import COMPUTE, STORED, literal
from hybrid_infer.backends.native._plan import BYTES, Plan, Step
from hybrid_infer.backends.native._size import product
from hybrid_infer.backends.native._window import windows

#: Threads of a block at most, and bytes of shared memory for partial results.
THREADS, SCRATCH = 512, 512

#: A reduction over the block, of which every thread gets the result. Blocks have whole warps. What threads hand each
#: other is an int at least, which types of one byte come back as.
REDUCE = """
struct HiSum { template <class T> __device__ inline T operator()(T a, T b) const { return a + b; } };
struct HiTop { template <class T> __device__ inline T operator()(T a, T b) const { return hi_max(a, b); } };
template <class T, class F> __device__ inline T hi_reduce(T x, T start, F join, T* scratch) {
  for (int lane = 16; lane > 0; lane >>= 1) x = join(x, (T)__shfl_xor_sync(0xffffffffu, x, lane));
  const int warps = blockDim.x >> 5;
  if (warps == 1) return x;
  __syncthreads();
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = x;
  __syncthreads();
  x = start;
  for (int i = 0; i < warps; ++i) x = join(x, scratch[i]);
  return x;
}
"""


def rows(plan: Plan, step: Step, name: str) -> Kernel:
    """The kernel of a row step; its entry points begin with `name`.

    Dynamic shared memory: `SCRATCH` bytes and, with ``cached`` set, ``width`` elements of the type in which rows are
    computed. The number ``cached`` is the last argument.
    """
    made = Rows(plan, step)
    lines = made.statements()
    parameters = declaration([*made.types, *made.stored], len(made.stored), made.reach.numbers) + ", int cached"
    pointers = [f"p{i}" for i in range(len(made.types) + len(made.stored))]
    passed = ", ".join([*pointers, *(f"n{i}" for i in range(len(made.reach.numbers))), "cached"])
    text = "\n".join(
        [
            REDUCE,
            f"template <class I, int V> __device__ inline void {name}_body({parameters}) {{",
            "  extern __shared__ __align__(16) unsigned char hi_shared[];",
            f"  {made.c}* scratch = ({made.c}*)hi_shared;",
            f"  {made.c}* cache = ({made.c}*)(hi_shared + {SCRATCH});",
            f"  const I width = {made.width_text};",
            f"  const I rows = width == 0 ? (I)0 : {made.count_text} / width;",
            "  for (I line = blockIdx.x; line < rows; line += gridDim.x) {",
            *indent(lines, 2),
            "  }",
            "}",
        ]
    )
    wides = indices(made.count, made.extent)
    entries, points = entry_points(name, parameters, passed, wides, THREADS, made.lanes())
    space, axis = step.attributes["space"], step.attributes["axis"]
    return Kernel(
        head(text) + "\n" + text + points + "\n", entries, [*made.types, *made.stored], made.reach.numbers, made.count,
        made.reach.sizes[-1], rows=product(space[:axis]), width=made.width, shared=SCRATCH, cached=True,
        each=BYTES[made.real], blocks=True, extent=made.extent,
    )  # fmt: skip


class Rows:
    """The statements of one row, pass by pass. ``c`` is the C type in which the row is computed."""

    def __init__(self, plan: Plan, step: Step) -> None:
        self.at = at = step.attributes
        self.types = [plan.values[each].dtype for each in step.inputs]
        self.stored = [dtype for dtype, _ in at["outputs"]]
        self.kinds = [STORED[dtype] for dtype in self.types]
        self.windows, self.extent = windows(step), extent(step)
        self.reach = access(at["space"], [*at["views"], *([at["space"]] * len(self.stored))], self.windows)
        self.body = Body(self.types, self.reach)
        self.real = inside(at["dtype"])
        self.c = COMPUTE[self.real]
        self.body.kinds["row"] = self.real
        self.softmax = at["kind"] in ("softmax", "log_softmax")
        self.width, self.count = product(at["space"][at["axis"] :]), product(at["space"])
        self.width_text, self.count_text = self.reach.term(self.width), self.reach.term(self.count)

    def statements(self) -> list[str]:
        return [*self._first(), *self._second(), *self._third()]

    def lanes(self) -> list[int]:
        """How many elements a thread may take: they must not pass the end of a row, nor of the last merged axis."""
        inner = self.reach.sizes[-1]
        steady = all(strides[-1] in (0, 1) for strides in self.reach.strides)
        if isinstance(inner, int) and isinstance(self.width, int):
            return lanes([*self.types, *self.stored], math.gcd(inner, self.width), steady, self.windows)
        found = lanes([*self.types, *self.stored], inner, steady, self.windows)
        if isinstance(self.width, int):
            return [v for v in found if self.width % v == 0]
        fits = inner == self.width or (isinstance(inner, int) and self.width % inner == 0)
        return found if fits else [1]

    def _number(self, value: float) -> str:
        return literal(value, self.real)

    def _call(self, name: str, argument: str) -> str:
        return f"{name}{'' if self.real == 'float64' else 'f'}({argument})"

    def _loop(self, lines: Sequence[str]) -> list[str]:
        """The elements of a row, `V` at a time, the first at ``at`` in the space and at ``c`` in the row."""
        return [
            "for (I c = (I)threadIdx.x * V; c < width; c += (I)blockDim.x * V) {",
            "  const I at = base + c;",
            f"  {self.c} x[V];",
            *indent(lines),
            "}",
        ]

    def _each(self, lines: Sequence[str]) -> list[str]:
        return ["#pragma unroll", "for (int j = 0; j < V; ++j) {", *indent(lines), "}"]

    def _before(self) -> list[str]:
        """Compute element j in front of the row."""
        lines = self.body.lines(self.at["before"], "b")
        return [*lines, f"x[j] = ({self.c}){self.body.argument(self.at['source'], 'b')[0]};"]

    def _sources(self) -> list[int]:
        return operands_of(self.at["before"], [self.at["source"]])

    def _fetch(self) -> list[str]:
        """Have the elements again: from shared memory, or computed anew."""
        anew = [*self.body.loads(self._sources(), self.kinds), *self._each(self._before())]
        return ["if (cached) {", *indent(self._each(["x[j] = cache[c + j];"])), "} else {", *indent(anew), "}"]

    def _results(self, early: bool) -> list[int]:
        return [i for i, each in enumerate(self.at["results"]) if (each[0] == "early") == early]

    def _places(self, early: bool) -> list[int]:
        """Those of some of the results among operands and results."""
        return [len(self.types) + i for i in self._results(early)]

    def _keep(self, which: Sequence[int], tag: str) -> tuple[list[str], list[str], list[str]]:
        """Declare some of the results, set element j of them, store them."""
        declared, assigned, written = [], [], []
        for i in which:
            kind, place = STORED[self.stored[i]], len(self.types) + i
            text, dtype = self.body.argument(self.at["results"][i], tag)
            declared.append(f"Pack<{kind}, V> r{i};")
            assigned.append(f"r{i}.v[j] = HiStore<{kind}, {COMPUTE[inside(dtype)]}>::of({text});")
            where = "at" if self.reach.straight(place) else f"o{place}"
            written.append(f"*(Pack<{kind}, V>*)(p{place} + {where}) = r{i};")
        return declared, assigned, written

    def _first(self) -> list[str]:
        before = self._before()
        declared, assigned, written = self._keep(self._results(early=True), "b")
        join, start, functor = self._statistic()
        each = [*before, "if (cached) cache[c + j] = x[j];", *assigned, f"one = {join};"]
        loads = self.body.loads(self._sources(), self.kinds, self._places(early=True))
        return [
            "const I base = line * width;",
            f"{self.c} one = {start};",
            *self._loop([*loads, *declared, *self._each(each), *written]),
            f"one = hi_reduce(one, {start}, {functor}(), scratch);",
            *self._centre(),
        ]

    def _statistic(self) -> tuple[str, str, str]:
        """How an element joins the first statistic, what that is of nothing, and what joins two of them."""
        if self.softmax:
            return "hi_max(one, x[j])", self._number(float("-inf")), "HiTop"
        return "one + x[j]", self._number(0.0), "HiSum"

    def _centre(self) -> list[str]:
        if self.softmax:
            return []
        centre = f"one / ({self.c})width" if self.at["kind"] == "layer" else self._number(0.0)
        return [f"const {self.c} mean = {centre};"]

    def _term(self) -> str:
        """What an element adds to the second statistic."""
        return self._call("exp", "x[j] - one") if self.softmax else "(x[j] - mean) * (x[j] - mean)"

    def _second(self) -> list[str]:
        return [
            f"{self.c} two = {self._number(0.0)};",
            *self._loop([*self._fetch(), *self._each([f"two += {self._term()};"])]),
            f"two = hi_reduce(two, {self._number(0.0)}, HiSum(), scratch);",
        ]

    def _third(self) -> list[str]:
        at, late = self.at, self._results(early=False)
        scale, result = self._normalised()
        found = [at["results"][i] for i in late]
        again = uses_early(at["code"], found)
        operands = {*operands_of(at["code"], found), *(self._sources() if again else ())}
        recomputed = self.body.lines(at["before"], "b") if again else []
        code = self.body.lines(at["code"], "t")
        declared, assigned, written = self._keep(late, "t")
        each = [f"const {self.c} row = {result};", *recomputed, *code, *assigned]
        loads = self.body.loads(sorted(operands), self.kinds, self._places(early=False))
        return [
            f"const {self.c} scale = {scale};",
            *self._loop([*self._fetch(), *loads, *declared, *self._each(each), *written]),
            "__syncthreads();",
        ]

    def _normalised(self) -> tuple[str, str]:
        """A factor for the row, and the normalised element."""
        if self.at["kind"] == "softmax":
            return f"{self._number(1.0)} / two", f"{self._call('exp', 'x[j] - one')} * scale"
        if self.at["kind"] == "log_softmax":
            return self._call("log", "two"), "(x[j] - one) - scale"
        root = self._call("sqrt", f"two / ({self.c})width + {self._number(self.at['epsilon'])}")
        return f"{self._number(1.0)} / {root}", "(x[j] - mean) * scale"


def indent(lines: Sequence[str], depth: int = 1) -> list[str]:
    return [line if line.startswith("#") else "  " * depth + line for line in lines]

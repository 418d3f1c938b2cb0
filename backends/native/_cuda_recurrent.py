"""CUDA C for what goes from each time to the next (LSTM, GRU, RNN): a block takes a sequence and goes along it.

Its threads take the units of a layer side by side; the states of all stand in shared memory, those of this time beside
those of the next one. Weights are read anew at each time: by all blocks, so that they come from the L2 cache. States
are float32 (float64 for float64) until the end.
"""

from __future__ import annotations

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_access import Access, Kernel, declaration, indices
from hybrid_infer.backends.native._cuda_body import head
from hybrid_infer.backends.native._cuda_entries import entry_points
from hybrid_infer.backends.native._cuda_expressions import COMPUTE, STORED
from hybrid_infer.backends.native._plan import BYTES, Plan, Step
from hybrid_infer.backends.native._size import Dim, product

RECURRENCES = ("recurrence",)

#: Threads of a block at most.
_THREADS = 1024

_GATES = """
__device__ inline float hi_gate(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline double hi_gate(double x) { return 1.0 / (1.0 + exp(-x)); }
__device__ inline float hi_tanh(float x) { return tanhf(x); }
__device__ inline double hi_tanh(double x) { return tanh(x); }
template <class T> __device__ inline T hi_relu(T x) { return x < 0 ? (T)0 : x; }
"""

#: What the sums of each gate (``s``, with the bias in them) become: ``out``, by what a unit held. Of a GRU the
#: products with the states stand apart (``u``).
_CELLS = {
    "LSTM": (
        "const {c} now_c = hi_gate(s2) * cell[j] + hi_gate(s0) * hi_tanh(s3);",
        "cell[j] = now_c;",
        "const {c} out = hi_gate(s1) * hi_tanh(now_c);",
    ),
    "GRU": (
        "const {c} z = hi_gate(s0 + u0), kept = hi_gate(s1 + u1);",
        "const {c} out = (1 - z) * hi_tanh(s2 + kept * u2) + z * now[j];",
    ),
    "RNN": ("const {c} out = {f}(s0);",),
}


def recurrence(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of a step of `_spell_recurrent`."""
    told, given, back = step.attributes, plan.values[step.inputs[0]], plan.values[step.inputs[1]]
    if given.shape is None or back.shape is None:
        return None
    time, batch, directions, wide = given.shape
    hidden, there = back.shape[1], list(told["there"])
    assert isinstance(hidden, int) and isinstance(wide, int) and isinstance(directions, int)
    gates, cell, dtype, c = wide // hidden, told["cell"], given.dtype, COMPUTE[inside(given.dtype)]
    names = [*step.inputs, *filter(None, step.outputs)]
    types = [plan.values[each].dtype for each in names]
    place = {part: f"p{2 + i}" for i, part in enumerate(there)}
    outputs = [part for part, each in zip(("y", "last", "last_c"), step.outputs, strict=False) if each]
    place.update({part: f"p{len(step.inputs) + i}" for i, part in enumerate(outputs)})
    reach, apart = Access([1], []), cell == "GRU"
    t, b = reach.term(time), reach.term(batch)
    held, u = f"HiStore<{STORED[dtype]}, {c}>::of", "u" if apart else "s"
    begin = {part: f"hi_load({at}[line * {hidden} + j])" for part, at in place.items() if part in ("h", "c")}
    first = [f"now[j] = {begin.get('h', '0')};"]
    first += [f"cell[j] = {begin.get('c', '0')};"] if cell == "LSTM" else []
    backwards = {"forward": "false", "reverse": "true"}.get(told["direction"], "d == 1")
    bias = [
        f"hi_load({place['b']}[(int)d * {2 * wide} + {side * wide + g * hidden} + j])" if "b" in place else ""
        for side in range(2) for g in range(gates)
    ]  # fmt: skip
    sums = [
        f"{c} s{g} = hi_load(p0[from + {g * hidden} + j]){f' + {bias[g]}' if bias[g] else ''}"
        f"{f' + {bias[gates + g]}' if bias[gates + g] and not apart else ''};"
        for g in range(gates)
    ]
    sums += [f"{c} u{g} = {bias[gates + g] or '0'};" for g in range(gates) if apart]
    words = {"c": c, "f": f"hi_{told['activation'].lower()}"}
    steps = f"(I){place['lengths']}[n]" if "lengths" in place else t
    store = [f"{place['y']}[to + j] = {held}({{}});"] if "y" in place else []
    ends = [f"{place['last']}[line * {hidden} + j] = {held}(now[j]);"] if "last" in place else []
    ends += [f"{place['last_c']}[line * {hidden} + j] = {held}(cell[j]);"] if "last_c" in place else []
    lines = [
        f"{c}* now = ({c}*)hi_shared;",
        f"{c}* next = now + {hidden};",
        f"{c}* cell = next + {hidden};",
        f"for (I line = blockIdx.x; line < {reach.term(batch * directions)}; line += gridDim.x) {{",
        f"  const I d = line / {b}, n = line % {b};",
        f"  for (int j = threadIdx.x; j < {hidden}; j += blockDim.x) {{ {' '.join(first)} }}",
        "  __syncthreads();",
        f"  const I steps = {steps};",
        f"  const auto* back = p1 + d * {hidden * wide};",
        f"  for (I t = 0; t < {t}; ++t) {{",
        "    // Backwards, a shorter sequence begins at its own end.",
        f"    const I at = ({backwards}) && t < steps && steps <= {t} ? steps - 1 - t : t;",
        f"    const I from = ((at * {b} + n) * {directions} + d) * {wide};",
        f"    const I to = ((at * {directions} + d) * {b} + n) * {hidden};",
        f"    for (int j = threadIdx.x; j < {hidden}; j += blockDim.x) {{",
        f"      if (t >= steps) {{ next[j] = now[j]; {' '.join(store).format('0')} continue; }}",
        *(f"      {each}" for each in sums),
        "      #pragma unroll 8",
        f"      for (int k = 0; k < {hidden}; ++k) {{",
        f"        const {c} x = now[k];",
        *(f"        {u}{g} += x * hi_load(back[k * {wide} + {g * hidden} + j]);" for g in range(gates)),
        "      }",
        *(f"      {each.format(**words)}" for each in _CELLS[cell]),
        "      next[j] = out;",
        *(f"      {each.format('out')}" for each in store),
        "    }",
        "    __syncthreads();",
        f"    {c}* const other = now;",
        "    now = next, next = other;",
        "  }",
        f"  for (int j = threadIdx.x; j < {hidden}; j += blockDim.x) {{ {' '.join(ends)} }}",
        "  __syncthreads();",
        "}",
    ]
    parameters = declaration(types, len(outputs), reach.numbers)
    passed = ", ".join([*(f"p{i}" for i in range(len(types))), *(f"n{i}" for i in range(len(reach.numbers)))])
    text = "\n".join(
        [
            _GATES,
            f"template <class I> __device__ inline void {name}_body({parameters}) {{",
            "  extern __shared__ __align__(16) unsigned char hi_shared[];",
            *(f"  {line}" for line in lines),
            "}",
        ]
    )
    threads = min(-(-hidden // 32) * 32, _THREADS)
    largest: Dim = product(given.shape) + product(back.shape)
    entries, points = entry_points(name, parameters, passed, indices(largest), threads)
    return Kernel(
        head(text) + "\n" + text + points + "\n", entries, types, reach.numbers, largest, 1, rows=batch * directions,
        shared=3 * hidden * BYTES[inside(dtype)], threads=threads, blocks=True,
    )  # fmt: skip

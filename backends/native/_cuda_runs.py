"""CUDA C for turns past a short axis, as of a convolution's weights or an image of three channels.

On one side a tile is one run of memory, which is moved 16 bytes at a time; on the other it is as many runs as the axis
is long, moved by words. A thread has a word of each of those runs, and what lies beside them in the one run: it sorts
elements in registers, by places that are known when it is compiled. The axis is odd, so that threads side by side ask
other banks of shared memory.
"""

from __future__ import annotations

from hybrid_infer.backends.native._cuda_access import VECTOR, Access, Kernel, declaration, indices
from hybrid_infer.backends.native._cuda_body import head
from hybrid_infer.backends.native._cuda_box import Box
from hybrid_infer.backends.native._cuda_entries import entry_points
from hybrid_infer.backends.native._cuda_expressions import STORED
from hybrid_infer.backends.native._plan import BYTES, Plan, Step
from hybrid_infer.backends.native._size import Dim, Size, product

#: The longest axis that a thread has a word of each place of, in registers.
_MOST = 31

#: Bytes of a word of a bank of shared memory.
_WORD = 4

#: Threads of a block: a tile has a word for each, of each run.
_THREADS = (128, 96, 64)

_WARP = 32


def turn_runs(plan: Plan, step: Step, name: str, box: Box) -> Kernel | None:
    """The kernel of a copy in which the last axis changes (see `Box.crossed`) past a short one; None for others."""
    across, last = box.crossed(), len(box.sizes) - 1
    assert across is not None
    types = [plan.values[step.inputs[0]].dtype, plan.values[step.outputs[0]].dtype]
    nbytes = BYTES[types[0]]
    word, vector = max(_WORD // nbytes, 1), VECTOR // nbytes
    others = [axis for axis in range(last) if axis != across]
    read, written = ([part[axis] for axis in others] for part in (box.read, box.written))
    # Either what is read is one run, and what is written several, or the other way round.
    if _short(box.sizes[across]) and box.read[last] == box.sizes[across]:
        apart, short, long = True, box.sizes[across], box.sizes[last]
        whole, parts, pitch = [*read, box.start], [*written, box.goal], box.written[across]
    elif _short(box.sizes[last]) and box.written[across] == box.sizes[last]:
        apart, short, long = False, box.sizes[last], box.sizes[across]
        whole, parts, pitch = [*written, box.goal], [*read, box.start], box.read[last]
    else:
        return None
    if any(each % vector != 0 for each in (*whole, long * short)) or any(
        each % word != 0 for each in (*parts, pitch, long)
    ):
        return None
    assert isinstance(short, int)
    threads = _threads(long, word)
    wide = threads * word
    reach, kind = Access([1], []), STORED[types[0]]
    term = reach.term
    tiled: Dim = (long + (wide - 1)) // wide
    tiles = product([tiled, *(box.sizes[axis] for axis in others)])
    piece = f"p{int(apart)} + {'to' if apart else 'from'} + at0 + mine * WORD + i * {term(pitch)}"
    run = f"p{int(not apart)} + {'from' if apart else 'to'} + at0 * SHORT"
    lines = [
        "extern __shared__ __align__(16) unsigned char hi_shared[];",
        f"constexpr int SHORT = {short}, WORD = {word}, VECTOR = {vector}, WIDE = {wide};",
        f"constexpr int VECTORS = WIDE * SHORT / VECTOR, EACH = (VECTORS + {threads - 1}) / {threads};",
        f"typedef Pack<{kind}, WORD> Word;",
        f"typedef Pack<{kind}, VECTOR> Vector;",
        f"const I tiles = {term(tiles)};",
        "for (I at = blockIdx.x; at < tiles; at += gridDim.x) {",
        "  I rest = at;",
        f"  const I at0 = rest % {term(tiled)} * WIDE, over = {term(long)} - at0;",
        f"  rest /= {term(tiled)};",
        "  const int left = over < WIDE ? (int)over : WIDE, mine = (int)threadIdx.x;",
        f"  I from = {term(box.start)}, to = {term(box.goal)};",
    ]
    lines += box.moved(others, term)
    each = [
        "#pragma unroll",
        "  for (int n = 0; n < EACH; ++n) {",
        f"    const int v = mine + n * {threads};",
        "    if (v < VECTORS && v * VECTOR < left * SHORT)",
    ]
    pick = [
        "#pragma unroll",
        "    for (int i = 0; i < SHORT; ++i) {",
        "      Word word;",
        "#pragma unroll",
        "      for (int m = 0; m < WORD; ++m)",
        *(
            ["        word.v[m] = words[(m * SHORT + i) / WORD].v[(m * SHORT + i) % WORD];",
             f"      *(Word*)({piece}) = word;"]
            if apart else
            ["        word.v[m] = words[(i * WORD + m) % SHORT].v[(i * WORD + m) / SHORT];",
             "      ((Word*)hi_shared)[mine * SHORT + i] = word;"]
        ),
        "    }",
    ]  # fmt: skip
    source = "((const Word*)hi_shared)[mine * SHORT + i]" if apart else f"*(const Word*)({piece})"
    words = [
        "  if (mine * WORD < left) {",
        "    Word words[SHORT];",
        "#pragma unroll",
        f"    for (int i = 0; i < SHORT; ++i) words[i] = {source};",
        *pick,
        "  }",
    ]
    if apart:
        # All of a thread's loads are under way at once: none waits for what another one puts into the tile.
        lines += [
            "  Vector held[EACH];",
            *each, f"      held[n] = ((const Vector*)({run}))[v];", "  }",
            *each, "      ((Vector*)hi_shared)[v] = held[n];", "  }",
            "  __syncthreads();",
            *words,
        ]  # fmt: skip
    else:
        lines += [
            *words,
            "  __syncthreads();",
            *each, f"      ((Vector*)({run}))[v] = ((const Vector*)hi_shared)[v];", "  }",
        ]  # fmt: skip
    lines += ["  __syncthreads();", "}"]
    parameters = declaration(types, 1, reach.numbers)
    passed = ", ".join(["p0", "p1", *(f"n{i}" for i in range(len(reach.numbers)))])
    opening = f"template <class I> __device__ inline void {name}_body({parameters}) {{"
    text = "\n".join([opening, *(f"  {line}" for line in lines), "}"])
    count = product(plan.values[step.inputs[0]].shape or ())
    entries, points = entry_points(name, parameters, passed, indices(count), threads)
    return Kernel(
        head(text) + "\n" + text + points + "\n", entries, types, reach.numbers, count, 1, rows=tiles, blocks=True,
        threads=threads, shared=wide * short * nbytes,
    )  # fmt: skip


def _short(size: Dim) -> bool:
    return isinstance(size, int) and 1 < size <= _MOST and size % 2 == 1


def _threads(long: Dim, word: int) -> int:
    """Of a block: as many as leave the fewest without work at the end of an axis."""
    if isinstance(long, Size):
        return _THREADS[0]
    if long <= _WARP * word:
        return _WARP
    return min(_THREADS, key=lambda each: -(-long // (each * word)) * each)

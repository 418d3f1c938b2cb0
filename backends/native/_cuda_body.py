"""The lines of a kernel that a body becomes: loads, instructions, stores, for the elements of one thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_access import Access
from hybrid_infer.backends.native._cuda_expressions import COMPUTE, NARROW, PRELUDE, expression, literal

#: Vectors in memory, and the way between stored and computed types.
_MEMORY = """
template <class T, int V> struct alignas(sizeof(T) * V) Pack { T v[V]; };
template <class T> __device__ inline T hi_load(T x) { return x; }
template <class T, class U> struct HiStore { static __device__ inline T of(U x) { return (T)x; } };
"""
_TRUTH = """
#ifndef HI_ON_HOST
struct HiTruth { unsigned char v; };
#endif
__device__ inline bool hi_load(HiTruth x) { return x.v != 0; }
template <class U> struct HiStore<HiTruth, U> {
  static __device__ inline HiTruth of(U x) { return {(unsigned char)(x != (U)0)}; }
};
"""
_HALF = """
__device__ inline float hi_load(__half x) { return __half2float(x); }
template <class U> struct HiStore<__half, U> {
  static __device__ inline __half of(U x) { return __float2half_rn((float)x); }
};
"""
_BFLOAT = """
__device__ inline float hi_load(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class U> struct HiStore<__nv_bfloat16, U> {
  static __device__ inline __nv_bfloat16 of(U x) { return __float2bfloat16_rn((float)x); }
};
"""


def head(text: str) -> str:
    """What stands above a kernel whose source is `text`: only what it uses, since headers take time to compile."""
    parts = []
    half, bfloat = "__half" in text or "float2half" in text, "bfloat16" in text
    if half:
        parts.append("#include <cuda_fp16.h>")
    if bfloat:
        parts.append("#include <cuda_bf16.h>")
    parts += [PRELUDE, _MEMORY]
    if "hi_normal" in text or "hi_logistic" in text:
        parts.append(NARROW)
    if "HiTruth" in text:
        parts.append(_TRUTH)
    if half:
        parts.append(_HALF)
    if bfloat:
        parts.append(_BFLOAT)
    return "\n".join(parts)


class Body:
    """Writes instructions as C, where operand k has been loaded as ``a<k>``, element j of it as ``a<k>.v[j]``.

    ``types``: the dtypes of the operands.
    """

    def __init__(self, types: Sequence[str], reach: Access) -> None:
        self.types, self.reach = list(types), reach
        self.kinds: dict[str, str] = {}

    def spread(self, operand: int) -> bool:
        """Is one element of the operand read for all elements of a thread?"""
        return self.reach.strides[operand][-1] == 0

    def loads(self, operands: Sequence[int], kinds: Sequence[str], results: Sequence[int] = ()) -> list[str]:
        """Load operands at ``at``, and say where `results` go; `kinds` are stored types of the operands."""
        bent = [k for k in (*operands, *results) if not self.reach.straight(k)]
        lines = self.reach.offsets(bent)
        for k in operands:
            place = f"o{k}" if k in bent else "at"
            if self.spread(k):
                lines.append(f"const {kinds[k]} a{k} = p{k}[{place}];")
            else:
                lines.append(f"const Pack<{kinds[k]}, V> a{k} = *(const Pack<{kinds[k]}, V>*)(p{k} + {place});")
        return lines

    def argument(self, each: Any, tag: str, row: str = "row") -> tuple[str, str]:
        """An argument as C, and its dtype. `tag` names the instructions of this body."""
        kind = each[0]
        if kind == "in":
            k = each[1]
            return f"hi_load(a{k}{'' if self.spread(k) else '.v[j]'})", self.types[k]
        if kind == "is":
            return literal(each[1], each[2]), each[2]
        if kind == "row":
            return row, self.kinds["row"]
        if kind == "early":
            return self.argument(each[1], "b", row)
        name = f"{tag}{each[1]}"
        return name, self.kinds[name]

    def lines(self, code: Sequence[Any], tag: str) -> list[str]:
        found = []
        for i, (op, arguments, dtype, attributes) in enumerate(code):
            pairs = [self.argument(each, tag) for each in arguments]
            text = expression(op, [p[0] for p in pairs], [p[1] for p in pairs], dtype, attributes)
            self.kinds[f"{tag}{i}"] = inside(dtype)
            found.append(f"const {COMPUTE[inside(dtype)]} {tag}{i} = {text};")
        return found


def operands_of(code: Sequence[Any], results: Sequence[Any] = ()) -> list[int]:
    """The operands that instructions and results read."""
    found: set[int] = set()
    for each in [*(a for _, arguments, _, _ in code for a in arguments), *results]:
        if each[0] == "in":
            found.add(each[1])
    return sorted(found)


def uses_early(code: Sequence[Any], results: Sequence[Any]) -> bool:
    return any(each[0] == "early" for _, arguments, _, _ in code for each in arguments) or any(
        each[0] == "early" for each in results
    )

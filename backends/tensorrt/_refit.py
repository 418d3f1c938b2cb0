"""Which weights a plan is to be given, in which form. Nothing here calls TensorRT."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from hybrid_infer._types import Memory
from hybrid_infer.backends.tensorrt._model import Stub

#: TensorRT's names of the element types that it refits.
TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BF16"}


def unknown(wanted: Collection[str], stubs: Mapping[str, Stub]) -> str:
    """Why an engine's list of weights is not that of its plan; empty if it is.

    One that it wants and we do not know would keep the zeros of the build.
    """
    if odd := sorted(set(wanted) - stubs.keys()):
        return f"it wants weights that the graph does not have: {', '.join(odd[:4])}"
    if gone := sorted(stubs.keys() - set(wanted)):
        return f"it does not let weights be refitted: {', '.join(gone[:4])}"
    return ""


def unfit(name: str, dtype: str) -> str:
    """Why a live tensor of some type cannot be made into a weight, all of which are floats; empty if it can."""
    return "" if dtype in TYPES else f"the weight {name!r} is {dtype} where the plan takes one of {', '.join(TYPES)}"


def fitted(tensor: Any, stub: Stub, memory: Memory) -> Any:
    """A live weight as the plan has it: itself where it is so already, else a copy on the device."""
    if stub.order is not None:
        tensor = memory.permuted(tensor, stub.order)
    return memory.ready(memory.cast(tensor, stub.dtype))


def misfit(name: str, found: tuple[str, tuple[int, ...]], stub: Stub) -> str:
    """Why a tensor cannot be the weight of that name; empty if it can."""
    if found == (stub.dtype, stub.shape):
        return ""
    return f"the weight {name!r} is {found[0]} {list(found[1])} where the plan takes {stub.dtype} {list(stub.shape)}"


def count(stub: Stub) -> int:
    return math.prod(stub.shape)


def to_json(stubs: Mapping[str, Stub]) -> dict[str, Any]:
    return {name: [stub.dtype, list(stub.shape), stub.order] for name, stub in stubs.items()}


def from_json(data: Mapping[str, Any]) -> dict[str, Stub]:
    """Raises ValueError, TypeError or KeyError where `data` is not what ``to_json`` gives."""
    found = {}
    for name, (dtype, shape, order) in data.items():
        if dtype not in TYPES:
            raise ValueError(f"{dtype} is no type of weights")
        found[name] = Stub(dtype, tuple(map(int, shape)), None if order is None else tuple(map(int, order)))
    return found

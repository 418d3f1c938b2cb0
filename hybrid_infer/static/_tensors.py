"""Named arrays in one safetensors file. NumPy has no bfloat16: such an array is given and taken as its uint16 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Element types of ours, by the format's names.
_NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "F16": "float16",
    "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
}  # fmt: skip


def carrier(dtype: str) -> str | None:
    """The element type of the arrays that carry `dtype` in such a file; None where it has no such type."""
    if dtype not in _NAMES.values():
        return None
    return "uint16" if dtype == "bfloat16" else dtype


def dump(arrays: Mapping[str, tuple[str, Any]]) -> bytes:
    """The file, from (element type, array in its carrier's type) by name."""
    import numpy as np
    import safetensors

    held = {name: (dtype, np.asarray(array, order="C")) for name, (dtype, array) in arrays.items()}
    specs = {
        name: safetensors.TensorSpec(
            dtype=dtype, shape=list(array.shape), data_ptr=array.ctypes.data, data_len=array.nbytes
        )
        for name, (dtype, array) in held.items()
    }
    return bytes(safetensors.serialize(specs, {"format": "np"}))


def load(data: bytes) -> dict[str, tuple[str, Any]]:
    """(element type, read-only array) by name. Raises ValueError, with what is wrong with the file."""
    import numpy as np
    import safetensors

    try:
        entries = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as fault:
        raise ValueError(str(fault)) from fault
    found = {}
    for name, entry in entries:
        dtype = _NAMES.get(entry["dtype"])
        if dtype is None:
            raise ValueError(f"{name!r} is of the element type {entry['dtype']}, which no tensor here has")
        array = np.frombuffer(bytes(entry["data"]), carrier(dtype)).reshape(entry["shape"])
        found[name] = (dtype, array)
    return found


def widened(array: Any) -> Any:
    """The float32 array of the values whose bfloat16 bits are given."""
    return (array.astype("uint32") << 16).view("float32")


def narrowed(array: Any) -> Any:
    """The bfloat16 bits of a float32 array, rounded to the nearest, ties to even; the way back from `widened`."""
    import numpy as np

    bits = np.asarray(array, dtype="float32", order="C").view("uint32")
    rounded = np.asarray((bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16).astype("uint16")
    nan = np.isnan(array)
    if nan.any():  # whose bits would overflow into the sign
        rounded[nan] = ((bits[nan] >> 16) | 0x40).astype("uint16")
    return rounded

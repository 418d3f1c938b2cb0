"""Constants that the converter cannot read in a serialised program, or the tracer does not make: computed from others.

NaN, booleans and half precision; of what ``to_tensor`` and ``assign`` are given, arrays of small numbers, and lists
with tensors in them.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import exchanged
from hybrid_infer.frontends._paddle_digits import HELD
from hybrid_infer.frontends._paddle_in_place import from_now_on
from hybrid_infer.frontends._paddle_watch import is_number, recorded
from hybrid_infer.frontends._paddle_windows import constant

_WIDER = {"float16": "float32", "uint8": "int32", "int8": "int32"}
_HELD_BY_THE_LAYER = "Keep them in a tensor of the layer"


def _nan(shape: list[int], dtype: Any) -> Any:
    import paddle

    endless = paddle.full(shape, math.inf, dtype)
    return endless - endless


def _full(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    result, half = op.result(0), op.result(0).dtype == paddle.float16
    shape, dtype = list(result.shape), paddle.float32 if half else result.dtype
    gone = math.isnan(attributes["value"])
    if not gone and not half:
        return None
    found = _nan(shape, dtype) if gone else paddle.full(shape, attributes["value"], dtype)
    return paddle.cast(found, result.dtype) if half else found


def _full_like(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The program holds the number in single precision, in which large ones are infinite."""
    known = constant(inputs[1])
    if op.result(0).dtype.name == "FLOAT64" and known is not None and math.isinf(known):
        remedy = "Use paddle.full(), which keeps it"
        raise TraceError(f"{op.name()} of float64 with a number that is, or may have become, infinite", remedy)


def _assign_value(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    values, result = attributes["values"], op.result(0)
    shape = list(result.shape)
    if result.dtype == paddle.bool:
        whole = np.array(values, "int32").reshape(shape)
        return paddle.cast(paddle.assign(whole) if whole.size else paddle.zeros(shape, "int32"), "bool")
    lost = [isinstance(value, float) and math.isnan(value) for value in values]
    if not any(lost):
        return None
    kept = [0.0 if gone else value for gone, value in zip(lost, values, strict=True)]
    numbers = paddle.cast(paddle.assign(np.array(kept, "float64").reshape(shape)), result.dtype)
    gone = paddle.assign(np.array(lost, "int64").reshape(shape)) > 0
    return paddle.where(gone, _nan(shape, result.dtype), numbers)


def _is_double(dtype: Any) -> bool:
    from paddle.base.data_feeder import convert_dtype

    return dtype is not None and convert_dtype(dtype) == "float64"


def _holds(data: Any) -> bool:
    """Is a tensor in these lists?"""
    import paddle

    if isinstance(data, (list, tuple)):
        return any(map(_holds, data))
    return isinstance(data, paddle.pir.Value)


def _type(data: Any) -> Any:
    """The element type that NumPy makes of lists of tensors and numbers; Paddle's own where NumPy has none."""
    import paddle
    from paddle.base.data_feeder import convert_dtype

    if isinstance(data, (list, tuple)):
        kinds = list(dict.fromkeys(map(_type, data)))
        return kinds[0] if len(kinds) == 1 else np.result_type(*kinds)
    if isinstance(data, paddle.pir.Value) and not is_number(data):
        return data.dtype if data.dtype == paddle.bfloat16 else np.dtype(convert_dtype(data.dtype))
    return np.dtype("int64") if isinstance(data, paddle.pir.Value) else np.array(data).dtype


def _stacked(data: Any, dtype: Any) -> Any:
    import paddle

    if not isinstance(data, paddle.pir.Value):
        data = paddle.stack([_stacked(each, dtype) for each in data]) if _holds(data) else paddle.assign(np.array(data))
    return paddle.cast(data, dtype) if paddle.base.data_feeder.convert_dtype(data.dtype) != str(dtype) else data


def _of_list(data: Any) -> Any:
    """A list with tensors in it, of whose elements NumPy makes an array in eager code: no gradient flows to them."""
    kind = _type(data)
    found = _stacked(data, kind if isinstance(kind, np.dtype) else "bfloat16")
    found.stop_gradient = True
    return found


class _Assigning:
    """Stands for ``assign``. Where ``to_tensor`` makes a constant of an array, which takes few element types, it is of
    a wider one, from which ``to_tensor`` casts."""

    def __init__(self, assign: Callable[..., Any], thread: int) -> None:
        self.assign, self._thread = assign, thread

    def __call__(self, given: Any, *rest: Any, **named: Any) -> Any:
        if threading.get_ident() != self._thread:
            return self.assign(given, *rest, **named)
        if isinstance(given, np.ndarray) and given.dtype == np.int64 and ((given < -HELD) | (given > HELD)).any():
            raise TraceError("a program holds whole numbers above 2**53 in double precision", _HELD_BY_THE_LAYER)
        wider = _WIDER.get(str(given.dtype)) if isinstance(given, np.ndarray) else None
        if wider is not None:
            given = given.astype(wider)
        elif isinstance(given, (list, tuple)) and _holds(given):
            given = _of_list(given)
        found = self.assign(given, *rest, **named)
        target = rest[0] if rest else named.get("output")
        if isinstance(target, type(found)) and found.dtype == target.dtype and recorded(found) == recorded(target):
            from_now_on(target, found)
        return found


def _to_tensor(make: Callable[..., Any], thread: int) -> Callable[..., Any]:
    """Of what stands for ``to_tensor`` in a trace, the same with element types as eagerly for lists with tensors."""
    import paddle

    def run(data: Any, dtype: Any = None, stop_gradient: bool = True) -> Any:
        if threading.get_ident() == thread and isinstance(data, (list, tuple)) and _holds(data):
            tensors = any(isinstance(each, paddle.pir.Value) and not is_number(each) for each in data)
            data = _of_list(data)
            if dtype is None and not tensors:
                dtype = {"f": paddle.get_default_dtype(), "i": "int64"}.get(np.dtype(data.dtype.name.lower()).kind)
        elif threading.get_ident() == thread and isinstance(data, (float, list, tuple)) and _is_double(dtype):
            data = np.array(data, "float64")  # the framework makes the default type of it first
        return make(data, dtype, stop_gradient)

    return run


@contextmanager
def of_any_type() -> Iterator[None]:
    """While a method is traced on this thread."""
    import paddle

    creation: Any = sys.modules["paddle.tensor.creation"]
    assign, make = creation.assign, creation._to_tensor_static
    known = assign is paddle.assign  # not so in each release
    thread = threading.get_ident()
    assigning = _Assigning(assign, thread)
    places = [(module, "assign", assigning) for module in (creation, paddle) if known]
    with exchanged((creation, "_to_tensor_static", _to_tensor(make, thread)), *places):
        yield


def assigning(function: Any) -> Any:
    """What stands for ``assign`` in the trace under way, by whatever name it is called; None of anything else."""
    stands: Any = sys.modules["paddle.tensor.creation"]
    mine = stands.assign if isinstance(stands.assign, _Assigning) else None
    return mine if mine is not None and function in (mine, mine.assign) else None


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "full": _full, "full_like": _full_like, "assign_value_": _assign_value, "assign_value": _assign_value,
}  # fmt: skip

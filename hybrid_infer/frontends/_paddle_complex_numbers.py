"""Complex numbers of Python and NumPy in a method that is traced, as Paddle has them beside an eager tensor.

In a program the framework takes them for numbers of double precision, or for none that it can write down.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hybrid_infer._own_thread import exchanged

_OPERATORS = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide"}
_WIDE = ("FLOAT64", "COMPLEX128")


def _is_complex(value: Any) -> bool:
    return value.dtype.name.startswith("COMPLEX")


def _made(numbers: Any, wide: bool) -> Any:
    """A tensor of complex numbers from an array of them."""
    import numpy
    import paddle

    numbers, part = numpy.asarray(numbers), "float64" if wide else "float32"
    if not numbers.shape:
        return paddle.complex(paddle.full([], float(numbers.real), part), paddle.full([], float(numbers.imag), part))
    return paddle.complex(paddle.assign(numbers.real.astype(part)), paddle.assign(numbers.imag.astype(part)))


@contextmanager
def as_eagerly() -> Iterator[None]:
    """While a method is traced on this thread. To be entered before what else the tracer is told of operators."""
    import numpy
    import paddle

    value_type: Any = paddle.pir.Value
    operators: Any = paddle._C_ops
    thread = threading.get_ident()
    creation: Any = sys.modules["paddle.tensor.creation"]
    assign_elements, write_array = operators.set_value_, operators.assign_value_
    make_tensor = creation._to_tensor_static

    def with_numbers(compute: Any, operator: Any, reversed_: bool) -> Any:
        def run(value: Any, other: Any) -> Any:
            number = type(other) is complex or (reversed_ and type(other) in (int, float) and _is_complex(value))
            if not number or threading.get_ident() != thread:
                return compute(value, other)
            made = _made(complex(other), value.dtype.name in _WIDE)
            value = value if _is_complex(value) else paddle.cast(value, made.dtype)
            return operator(made, value) if reversed_ else operator(value, made)

        return run

    def elements(value: Any, *given: Any) -> Any:
        if threading.get_ident() != thread or not isinstance(value, value_type) or not _is_complex(value):
            return assign_elements(value, *given)
        *where, shape, numbers = given
        made = _made(numpy.asarray(numbers, complex).reshape(shape), value.dtype.name in _WIDE)
        return operators.set_value_with_tensor_(value, made, *where)

    def array(output: Any, *given: Any) -> Any:
        if threading.get_ident() != thread or not isinstance(output, value_type) or not _is_complex(output):
            return write_array(output, *given)
        shape, dtype, numbers, *_ = given
        return _made(numpy.asarray(numbers, complex).reshape(shape), dtype.name in _WIDE)

    def tensor(data: Any, dtype: Any = None, *rest: Any) -> Any:
        """Of numbers that have no type, in that of the program's."""
        if dtype is None and isinstance(data, (complex, list, tuple)) and threading.get_ident() == thread:
            flat = paddle.utils.flatten(data)
            if all(type(each) in (int, float, complex) for each in flat) and complex in map(type, flat):
                dtype = "complex128" if paddle.get_default_dtype() == "float64" else "complex64"
        return make_tensor(data, dtype, *rest)

    methods = (
        (value_type, method, with_numbers(getattr(value_type, method), getattr(paddle, operator), turned))
        for name, operator in _OPERATORS.items()
        for method, turned in ((f"__{name}__", False), (f"__r{name}__", True))
    )
    places = (operators, "set_value_", elements), (operators, "assign_value_", array)
    with exchanged(*methods, *places, (creation, "_to_tensor_static", tensor)):
        yield

"""Fractions of sizes that vary, as Python has them: in double precision, of which a program has single precision.

What operators make of a size is noted; made whole again, it is computed anew, in whole numbers where it can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import replaced
from hybrid_infer.frontends._paddle_watch import Fraction, Watch, is_number

_OPERATORS = ("add", "sub", "mul", "truediv", "pow")
_REMAINDERS = ("__floordiv__", "__rfloordiv__", "__mod__", "__rmod__")
_FUNCTIONS: dict[Any, str] = {math.sqrt: "sqrt", math.log: "log"}


@contextmanager
def noted() -> Iterator[None]:
    """For the time of a trace, on this thread."""
    import paddle

    kind = paddle.pir.Value
    with ExitStack() as stack:
        for name in _OPERATORS:
            for swapped in (False, True):
                stack.enter_context(replaced(kind, f"__{'r' * swapped}{name}__", partial(_operate, name, swapped)))
        for name in _REMAINDERS:
            stack.enter_context(replaced(kind, name, _divide))
        yield


def _operate(name: str, swapped: bool, operator: Callable[..., Any], value: Any, other: Any) -> Any:
    result = operator(value, other)
    return _note(result, name, *((other, value) if swapped else (value, other)))


def _divide(operator: Callable[..., Any], value: Any, other: Any) -> Any:
    result = operator(value, other)
    if _is_float(result) and _is_known(value) and _is_known(other):
        raise TraceError("a fraction is divided without a remainder that a size which varies makes")
    return result


def _note(result: Any, name: str, *operands: Any) -> Any:
    watch = Watch.current
    if watch is not None and _is_float(result) and all(map(_is_known, operands)):
        watch.fractions.append(Fraction(result, name, operands))
    return result


def _is_float(value: Any) -> bool:
    import paddle

    return isinstance(value, paddle.pir.Value) and not value.ndim and value.is_floating_point()


def _is_known(value: Any) -> bool:
    return isinstance(value, (int, float)) or is_number(value) or _found(value) is not None


def _found(value: Any) -> Fraction | None:
    watch = Watch.current
    if watch is None or not _is_float(value):
        return None
    return next((each for each in reversed(watch.fractions) if each.value.is_same(value)), None)


def _exact(value: Any) -> Any:
    """A size, number or fraction in double precision."""
    import paddle

    if isinstance(value, (int, float)):
        return paddle.full([], float(value), "float64")
    found = _found(value)
    if found is None:
        return paddle.cast(value, "float64")
    operators = {
        "add": paddle.add, "sub": paddle.subtract, "mul": paddle.multiply, "truediv": paddle.divide, "pow": paddle.pow,
        "sqrt": paddle.sqrt, "log": paddle.log, "float": lambda number: number,
    }  # fmt: skip
    return operators[found.name](*map(_exact, found.operands))


def _quotient(value: Any) -> tuple[Any, int] | None:
    """A size that varies, and the number that it was divided by; None of another value."""
    if is_number(value):
        return value, 1
    found = _found(value)
    if found is None or found.name not in ("mul", "truediv") or not is_number(found.operands[0]):
        return None
    whole, by = found.operands
    if found.name == "mul" and isinstance(by, float) and math.frexp(by)[0] == 0.5 and by < 1:  # a half, a quarter
        by = int(1 / by)
    return (whole, by) if type(by) is int and 0 < by < 2**16 else None


def _whole(way: str, value: Any) -> Any:
    """A fraction of sizes made whole, with the digits that Python has; None of another value."""
    import paddle

    known = _quotient(value)
    if known is not None:
        return known[0] if known[1] == 1 else _DIVIDED[way](*known)
    if _found(value) is None:
        return None
    number = _exact(value)
    lower = paddle.floor(number)
    made = paddle.cast(-paddle.floor(-number) if way == "ceil" else number if way == "trunc" else lower, "int64")
    if way == "round":
        rest, half = number - lower, paddle.full([], 0.5, "float64")
        odd = paddle.cast(made % 2, "bool")
        made = made + paddle.cast((rest > half) | ((rest == half) & odd), "int64")
    assert Watch.current is not None
    Watch.current.sizes.append(made)
    return made


def _cut(whole: Any, by: int) -> Any:
    """Towards 0: a size less a number may be negative."""
    import paddle

    nothing = paddle.full([], 0, whole.dtype)
    return paddle.maximum(whole, nothing) // by - paddle.maximum(-whole, nothing) // by


def _nearest(whole: Any, by: int) -> Any:
    """Of two that are as near, the even one."""
    import paddle

    twice = whole * 2 + by
    upper = twice // (2 * by)
    between = 1 - paddle.minimum(twice % (2 * by), paddle.full([], 1, whole.dtype))
    return upper if by % 2 else upper - (upper % 2) * between


_DIVIDED: dict[str, Callable[[Any, int], Any]] = {
    "floor": lambda whole, by: whole // by,
    "ceil": lambda whole, by: -(-whole // by),
    "trunc": _cut,
    "round": _nearest,
}


def ceil(value: Any) -> Any:
    """``math.ceil()`` of what stands for a tensor in a trace."""
    found = _whole("ceil", value)
    return math.ceil(float(value)) if found is None else found


def floor(value: Any) -> Any:
    """The same of ``math.floor()``."""
    found = _whole("floor", value)
    return math.floor(float(value)) if found is None else found


def rounded(value: Any, digits: int | None = None) -> Any:
    """The same of ``round()``, to a whole number."""
    found = _whole("round", value) if digits is None else None
    if found is None:
        raise TypeError("type Value doesn't define __round__ method")
    return found


def converting(convert: Callable[..., Any]) -> Callable[..., Any]:
    """``int()`` and ``float()`` in rewritten code."""

    def converted(value: Any, kind: str) -> Any:
        watch = Watch.current
        if watch is None or not watch.sees(value):
            return convert(value, kind)
        found = _whole("trunc", value) if kind == "int" else None
        if found is not None:
            return found
        result = convert(value, kind)
        return _note(result, "float", value) if kind == "float" else result

    return converted


def function(func: Any) -> Callable[..., Any] | None:
    """What stands for ``math.sqrt`` and ``math.log``; None of any other."""
    try:
        name = _FUNCTIONS.get(func)
    except TypeError:  # it has no hash
        return None
    if name is None:
        return None

    def of(*given: Any) -> Any:
        import paddle

        if len(given) != 1 or isinstance(given[0], (int, float)) or not _is_known(given[0]):
            return func(*given)
        return _note(getattr(paddle, name)(paddle.cast(given[0], "float32")), name, given[0])

    return of

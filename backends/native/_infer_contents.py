"""The elements of small integer tensors, as sizes: how a graph computes shapes from shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_infer.backends.native._numpy_shape import bounds
from hybrid_infer.backends.native._plan import Step
from hybrid_infer.backends.native._size import Dim, Size, largest, product, smallest

if TYPE_CHECKING:
    from hybrid_infer.backends.native._infer import Scope

#: Tensors with more elements describe no shape.
_MOST = 64


def scalar(size: Dim) -> Any:
    return _array(size, ())


def _array(sizes: Any, shape: tuple[int, ...]) -> Any:
    """An array of Python objects; NumPy must not look inside them."""
    result: Any = np.empty(shape, object)
    if shape == ():
        result[()] = sizes
    else:
        for i, size in enumerate(sizes):
            result.reshape(-1)[i] = size
    return result


def remember(contents: dict[str, Any], name: str, array: Any) -> None:
    """Note a constant of whole numbers."""
    if array.dtype.kind in "iub" and array.size <= _MOST:
        contents[name] = array.astype(object)


def follow(scope: Scope, step: Step) -> None:
    """Note the elements of the result of `step`, if they follow."""
    function = _FOLLOWED.get(step.op)
    value = scope.plan.values.get(step.outputs[0])
    if function is None or value is None or value.dtype not in ("int64", "int32", "bool"):
        return
    found = function(scope, step)
    if found is None or found.size > _MOST:
        return
    scope.contents[step.outputs[0]] = found


def _operands(scope: Scope, step: Step) -> list[Any] | None:
    found = [scope.contents.get(name) if name else None for name in step.inputs]
    if any(array is None and name for array, name in zip(found, step.inputs, strict=True)):
        return None
    return found


def _plain(function: Callable[..., Any]) -> Callable[[Scope, Step], Any]:
    """A function of the operands' elements and the step's attributes."""

    def followed(scope: Scope, step: Step) -> Any:
        operands = _operands(scope, step)
        return None if operands is None else function(step, *operands)

    return followed


def _shape(scope: Scope, step: Step) -> Any:
    shape = scope.shape(step)
    if shape is None:
        return None
    part = shape[slice(step.attributes.get("start", 0), step.attributes.get("end"))]
    return _array(part, (len(part),))


def _size(scope: Scope, step: Step) -> Any:
    shape = scope.shape(step)
    return None if shape is None else scalar(product(shape))


def _integers(array: Any) -> Any | None:
    """Plain integers out of an array of sizes; None where one is symbolic."""
    if any(isinstance(each, Size) for each in array.reshape(-1)):
        return None
    return array.astype(np.int64)


def _gather(step: Step, x: Any, indices: Any) -> Any:
    places = _integers(indices)
    return None if places is None else np.asarray(np.take(x, places, step.attributes.get("axis", 0)), object)


def _slice(step: Step, x: Any, *rest: Any) -> Any:
    numbers = [None if each is None else _integers(each) for each in rest]
    if x.ndim != 1 or any(n is None and r is not None for n, r in zip(numbers, rest, strict=True)):
        return None
    stride = 1 if len(numbers) < 4 or numbers[3] is None else int(numbers[3][0])
    assert numbers[0] is not None and numbers[1] is not None
    low, high = bounds(int(numbers[0][0]), int(numbers[1][0]), stride, x.shape[0])
    return x[low:high:stride]


def _reshape(scope: Scope, step: Step) -> Any:
    x, value = scope.contents.get(step.inputs[0]), scope.plan.values[step.outputs[0]]
    shape = value.fixed()
    return None if x is None or shape is None else x.reshape(shape)


def _elementwise(function: Callable[[Any, Any], Any]) -> Callable[[Scope, Step], Any]:
    def each(step: Step, a: Any, b: Any) -> Any:
        return np.asarray(np.frompyfunc(function, 2, 1)(a, b), object)

    return _plain(each)


def _divide(step: Step, a: Any, b: Any) -> Any:
    if any(isinstance(n, int) and n <= 0 for n in b.reshape(-1)) or any(
        isinstance(n, int) and n < 0 for n in a.reshape(-1)
    ):
        return None  # towards zero is not down
    return np.asarray(np.frompyfunc(lambda m, n: m // n, 2, 1)(a, b), object)


def _modulo(step: Step, a: Any, b: Any) -> Any:
    if step.attributes.get("fmod") or any(isinstance(n, Size) or n <= 0 for n in b.reshape(-1)):
        return None
    return np.asarray(np.frompyfunc(lambda m, n: m % n, 2, 1)(a, b), object)


def _equal(step: Step, a: Any, b: Any) -> Any:
    def same(m: Dim, n: Dim) -> bool | None:
        if isinstance(m, Size) or isinstance(n, Size):
            fixed = n if isinstance(m, Size) else m
            if m == n:
                return True
            return False if isinstance(fixed, int) and fixed < 0 else None
        return bool(m == n)

    found = np.asarray(np.frompyfunc(same, 2, 1)(a, b), object)
    return None if any(each is None for each in found.reshape(-1)) else found


def _cast(step: Step, x: Any) -> Any:
    if step.attributes["to"] == "bool" and _integers(x) is None:
        return None  # a size may be 0
    return x


def _where(step: Step, condition: Any, a: Any, b: Any) -> Any:
    return np.asarray(np.frompyfunc(lambda c, m, n: m if c else n, 3, 1)(condition, a, b), object)


def _constant_of_shape(step: Step, shape: Any) -> Any:
    counts = _integers(shape)
    value = step.attributes.get("value")
    if counts is None or value is None or int(np.prod(counts)) > _MOST:
        return None
    return np.full(tuple(counts), value["number"], object)


def _range(step: Step, start: Any, limit: Any, stride: Any) -> Any:
    numbers = [_integers(each) for each in (start, limit, stride)]
    if any(each is None for each in numbers):
        return None
    first, last, by = (int(np.reshape(each, ())) for each in numbers if each is not None)
    return None if len(range(first, last, by)) > _MOST else np.array(range(first, last, by), object)


def _reduce(scope: Scope, step: Step) -> Any:
    x, shape = scope.contents.get(step.inputs[0]), scope.plan.values[step.outputs[0]].fixed()
    if x is None or shape not in ((), (1,)):
        return None
    return _array([product(x.reshape(-1))] if shape else product(x.reshape(-1)), shape)


def _spelled(scope: Scope, step: Step) -> Any:
    elements, shape = step.attributes["elements"], tuple(step.attributes["shape"])
    return _array(elements if shape else elements[0], shape)


def _concat(step: Step, *parts: Any) -> Any:
    return np.concatenate(parts, step.attributes["axis"])


_FOLLOWED: dict[str, Callable[[Scope, Step], Any]] = {
    "Shape": _shape, "Size": _size, "Gather": _plain(_gather), "Slice": _plain(_slice), "Concat": _plain(_concat),
    "Reshape": _reshape, "Squeeze": _reshape, "Unsqueeze": _reshape, "view": _reshape, "sizes": _spelled,
    "Identity": _plain(lambda step, x: x), "Cast": _plain(_cast),
    "Add": _elementwise(lambda a, b: a + b), "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b), "Max": _elementwise(largest), "Min": _elementwise(smallest),
    "Div": _plain(_divide), "Mod": _plain(_modulo), "Equal": _plain(_equal), "Where": _plain(_where),
    "ReduceProd": _reduce,
    "ConstantOfShape": _plain(_constant_of_shape), "Range": _plain(_range),
}  # fmt: skip

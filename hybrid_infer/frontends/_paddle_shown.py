"""What a method is shown of a program's values while it is traced: sizes, truths and parts as eager tensors have them.

Each function gives what stands in the place of a part of the framework meanwhile. Other threads, and the framework's
own code, are answered by that part, so that all of them are asked before any is put there.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

from hybrid_infer._errors import TraceError

if TYPE_CHECKING:
    from hybrid_infer.frontends._paddle_watch import Watch

#: The class or module, the name there, and what stands there meanwhile.
Change = tuple[Any, str, Any]

#: What both Paddle and Python read as the same number.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|inf|nan)", re.ASCII)


def shown(watch: Watch) -> list[Change]:
    """What stands in the framework's places while `watch` is on."""
    return [*_sizes(watch), *_questions(watch), *_parts(watch), *_operators(watch)]


def _sizes(watch: Watch) -> Iterator[Change]:
    """The shape of a value, and the number of its elements."""
    import paddle
    from paddle.base.dygraph import math_op_patch
    from paddle.jit import dy2static

    value_type: Any = paddle.pir.Value
    raw, elements, convert_shape = value_type.shape, value_type.size, dy2static.Shape
    eager_size = getattr(math_op_patch, "TensorSize", None)

    def shape(value: Any) -> Any:
        sizes = raw.fget(value)
        return watch.numbers(value, sizes) if watch.ours(sys._getframe(1)) else sizes

    def size(value: Any) -> Any:
        """How many elements it has: eagerly a number that can be called too, which no result of a graph can be."""
        if not watch.ours(sys._getframe(1)):
            return elements.fget(value)
        sizes = watch.numbers(value, raw.fget(value))
        known = math.prod(each for each in sizes if isinstance(each, int))
        varying = [each for each in sizes if not isinstance(each, int)]
        if not varying:
            return eager_size(sizes) if eager_size is not None else known
        found = reduce(lambda left, right: left * right, varying if known == 1 else [*varying, known])
        watch.counted.append(found)
        return found

    def shape_in_rewritten_code(value: Any) -> Any:
        return watch.numbers(value, raw.fget(value)) if watch.sees(value) else convert_shape(value)

    yield value_type, "shape", property(shape)
    yield value_type, "size", property(size)
    yield dy2static, "Shape", shape_in_rewritten_code


def _questions(watch: Watch) -> Iterator[Change]:
    """What is asked about sizes, and whether gradients are recorded."""
    import paddle
    from paddle.jit import dy2static

    value_type: Any = paddle.pir.Value
    raw, truth_of_tensor = value_type.shape, value_type.__bool__
    convert_branch, convert_check, asked = dy2static.IfElse, dy2static.Assert, paddle.base.core._has_grad

    def truth(value: Any) -> bool:
        found = watch.decided(value)
        return found if isinstance(found, bool) else bool(truth_of_tensor(value))

    def branch(condition: Any, *rest: Any, **named: Any) -> Any:
        return convert_branch(watch.decided(condition, not watch.every_side), *rest, **named)

    def check(condition: Any, *message: Any) -> Any:
        return convert_check(watch.decided(condition), *message)

    def has_grad() -> bool:
        # Only the function that the user calls asks this.
        if not watch.asks_for_gradients and watch.ours(sys._getframe(2)):
            raise TraceError("it asks whether gradients are recorded", "Ask outside of the method")
        return bool(asked())

    def is_truth(value: Any) -> bool:
        return isinstance(value, value_type) and value.dtype.name == "BOOL" and not raw.fget(value)

    def of_truths(name: str, compute: Any) -> Any:
        """Two answers about sizes are numbers, of which the sum may be 2; of truths of tensors it is none."""

        def run(value: Any, other: Any) -> Any:
            if watch.ours(sys._getframe(1)) and is_truth(value) and is_truth(other):
                pair = watch.decided(value), watch.decided(other)
                if all(isinstance(each, bool) for each in pair):
                    return getattr(int, name)(*map(int, pair))
            return compute(value, other)

        return run

    yield value_type, "__bool__", truth
    yield dy2static, "IfElse", branch
    yield dy2static, "Assert", check
    yield paddle.base.core, "_has_grad", has_grad
    for name in ("__add__", "__sub__", "__mul__"):
        if name in vars(value_type):
            yield value_type, name, of_truths(name, vars(value_type)[name])


def _parts(watch: Watch) -> Iterator[Change]:
    """Tensors that are gone through part by part."""
    import paddle

    value_type: Any = paddle.pir.Value
    operators: Any = paddle._C_ops
    calls: Any = sys.modules["paddle.jit.dy2static.convert_call_func"]
    variable_tuple: Any = sys.modules["paddle.jit.dy2static.convert_operators"].VariableTuple
    raw, arguments_in_place = value_type.shape, paddle.pir.Block.args
    convert_zip, convert_enumerate = calls.convert_zip, calls.convert_enumerate

    def length(value: Any) -> int:
        sizes = raw.fget(value)
        if not sizes or sizes[0] < 0:
            raise TypeError("a dimension that varies has no length while the method is traced")
        return int(sizes[0])

    def iterate(value: Any) -> Iterator[Any]:
        return (value[index] for index in range(length(value)))

    def arguments(block: Any) -> list[Any]:
        """As values of their own. The framework's point into a list that moves as it grows, and would stand for
        whatever lies there later: its own loops keep them, and so does the traceback of a loop that failed.
        """
        return [argument._clone() for argument in arguments_in_place(block)]

    def zipped(*parts: Any, **named: Any) -> Any:
        """With ``strict`` too, which the framework's does not know."""
        made = convert_zip(*parts)
        return zip(*parts, **named) if named else made  # noqa: B905

    def numbered(*given: Any, **named: Any) -> Any:
        """With ``start`` by name too."""
        return convert_enumerate(*given, *(named.pop(name) for name in ("start",) if name in named), **named)

    def pairs(rows: Any) -> Iterator[Any]:
        """Of a comprehension over ``enumerate()``: the framework's have no end where the number of parts varies."""
        return (rows[place] for place in range(length(rows.var)))

    def apart(function: Callable[..., Any]) -> Callable[..., Any]:
        """The framework ends the process where it is to take a tensor apart and does not know into how many."""

        def run(value: Any, axis: int = 0, *rest: Any, **named: Any) -> Any:
            if watch.sees(value) and raw.fget(value)[axis] < 0:
                raise TraceError("it takes a tensor apart along a dimension that varies")
            return function(value, axis, *rest, **named)

        return run

    # As of an eager tensor; without them Python would ask for elements until one fails, and none does.
    for name, method in (("__len__", length), ("__iter__", iterate)):
        if name not in vars(value_type):
            yield value_type, name, method
    yield paddle.pir.Block, "args", arguments
    yield calls, "convert_zip", zipped
    yield calls, "convert_enumerate", numbered
    yield variable_tuple, "__iter__", pairs
    for name in ("unbind", "unstack"):
        yield operators, name, apart(getattr(operators, name))


def _operators(watch: Watch) -> Iterator[Change]:
    """Operators whose form for programs takes less, or gives another type, than that for eager tensors."""
    import paddle

    operators: Any = paddle._C_ops
    fill, equal_all = operators.full, operators.equal_all

    def filled(sizes: Any, content: Any, *rest: Any, **named: Any) -> Any:
        """With a number that is written as text, such as "-inf", which only the eager operator reads.

        The framework ends the process where it is to take an array for a number.
        """
        if watch.on():
            if getattr(content, "ndim", 0) and type(content).__module__ == "numpy":
                remedy = "Make a tensor of it first: paddle.to_tensor(array)"
                raise TraceError("it computes with an array of NumPy beside a tensor", remedy)
            if isinstance(content, str) and _NUMBER.fullmatch(content):
                content = _number(content)
        return fill(sizes, content, *rest, **named)

    def alike(value: Any, other: Any, *rest: Any, **named: Any) -> Any:
        """A truth, which the framework says is a float while a program is made."""
        found = equal_all(value, other, *rest, **named)
        return paddle.cast(found, "bool") if watch.sees(found) and found.dtype.name != "BOOL" else found

    yield operators, "full", filled
    yield operators, "equal_all", alike


def _number(text: str) -> int | float:
    """A number that is written as text. ValueError: it is none."""
    try:
        return int(text)
    except ValueError:
        return float(text)

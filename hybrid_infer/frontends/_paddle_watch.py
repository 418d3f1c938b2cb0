"""What the tracer would let pass in silence, under watch for the time of a trace."""

from __future__ import annotations

import math
import re
import sys
import threading
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends import _paddle_constants
from hybrid_infer.frontends._paddle_in_place import Reshaped
from hybrid_infer.frontends._paddle_sizes import Sizes

FOREIGN = "it uses a tensor that is neither an argument nor held by the layer"
FOREIGN_REMEDY = "Keep the tensor as an attribute of the layer, or pass it as an argument"
#: What both Paddle and Python read as the same number.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|inf|nan)", re.ASCII)
#: Functions of the framework's that go on from a size as users' code does.
_ASK = frozenset({
    ("paddle.signal", "istft"), ("paddle.tensor.linalg", "cov"), ("paddle.nn.functional.loss", "kl_div"),
})  # fmt: skip


class _Any:
    def __contains__(self, name: object) -> bool:
        return True


_ANY = _Any()
#: How a size is taken from a shape, and what Python's operators on it become.
_ARITHMETIC = frozenset(
    {
        "slice", "full_int_array", "full", "scale", "add", "subtract", "multiply", "floor_divide", "remainder",
        "maximum", "minimum", "cast",
    }
)  # fmt: skip

_CHECKS = 64  # of sizes that are taken not to be 0, in one trace


class Watch:
    """Sees, on one thread and for the time of a trace, what the tracer would let pass in silence.

    A dimension that varies has the size -1 in Python code that was not rewritten: user code gets an operator that
    yields the real size instead, and fails loudly where it needs a number; what it asks about sizes is answered where
    `asked` can tell.
    Tensors that are no argument become parameters: those that are a weight become that weight's input. A method is told
    whether gradients are recorded where it is known that it `asks_for_gradients`, so that each answer makes a program.
    With `some`, sizes that values decide are taken not to be 0 where that is asked.
    """

    current: Watch | None = None  # tracers take turns

    def __init__(
        self, values: dict[int, Any], asked: Sizes, every_side: bool, asks_for_gradients: bool,
        constants: Sequence[Any] = (), some: bool = False,
    ) -> None:  # fmt: skip
        self.thread, self.values, self.asked = threading.get_ident(), values, asked
        self.every_side, self.asks_for_gradients = every_side, asks_for_gradients
        self.reshaped = Reshaped()
        self.sizes: list[Any] = []
        #: What stands for numbers of elements, as the method asked for them.
        self.counted: list[Any] = []
        self._constants = {id(tensor): tensor for tensor in constants}
        #: What stands for these where the method uses them.
        self.taken: list[Any] = []
        self.refused = False  # a tensor out of sight
        self._some = some
        #: Was it asked whether a size is 0 that values decide? Where it is taken not to be, what has to hold for that.
        self.asked_for_some = False
        self.checks: list[Any] = []

    def cast_hook(self, value: Any) -> Any:
        import paddle
        from paddle.pir.core import _convert_into_value

        if threading.get_ident() != self.thread or not isinstance(value, paddle.Tensor):
            return _convert_into_value(value)
        known = self.standing_for(value)
        if known is not None:
            return known
        self.refused = True  # what the framework makes of the error does not always say so
        raise TraceError(FOREIGN, FOREIGN_REMEDY)

    def standing_for(self, tensor: Any) -> Any:
        """The input or constant of the program for a live tensor; None where there can be none."""
        known = self.values.get(id(tensor))
        if known is None and id(tensor) in self._constants and _paddle_constants.fits(tensor):
            with _paddle_constants.first():
                self.values[id(tensor)] = known = _paddle_constants.made(tensor)
            self.taken.append(known)
        return known

    def _taken(self, value: Any) -> Any:
        """What a question is taken to be true or false of; the value itself where nothing is."""
        found = self.asked.of_some(value)
        if found is None:
            return value
        self.asked_for_some = True
        if not self._some:
            return value
        import paddle

        if len(self.checks) >= _CHECKS:  # a loop that ends where a size is 0 would not end
            raise TraceError("it asks again and again whether a size is 0 that values decide")
        truth = paddle.cast(value, "bool")
        self.checks.append(truth if found else paddle.logical_not(truth))
        return found

    @contextmanager
    def active(self) -> Iterator[None]:
        import paddle
        from paddle.base.dygraph import math_op_patch
        from paddle.jit import dy2static
        from paddle.pir.core import static_op_arg_cast_guard

        value_type: Any = paddle.pir.Value
        raw, elements = value_type.shape, value_type.size
        eager_size = getattr(math_op_patch, "TensorSize", None)
        thread = self.thread

        def ours(frame: Any) -> bool:
            module, name = frame.f_globals.get("__name__") or "", frame.f_code.co_name
            return threading.get_ident() == thread and (module.partition(".")[0] != "paddle" or (module, name) in _ASK)

        def shape(value: Any) -> Any:
            sizes = raw.fget(value)
            return numbers(value, sizes) if ours(sys._getframe(1)) else sizes

        def numbers(value: Any, sizes: Any) -> Any:
            """As the user's code is to see them: of an eager tensor's class where all of them are known."""
            if -1 not in sizes:
                return paddle.Size(sizes)
            real = paddle.shape(value)
            self.sizes.append(real)
            return [real[axis] if size == -1 else size for axis, size in enumerate(sizes)]

        def size(value: Any) -> Any:
            """How many elements it has: eagerly a number that can be called too, which no result of a graph can be."""
            if not ours(sys._getframe(1)):
                return elements.fget(value)
            sizes = numbers(value, raw.fget(value))
            known = math.prod(each for each in sizes if isinstance(each, int))
            varying = [each for each in sizes if not isinstance(each, int)]
            if not varying:
                return eager_size(sizes) if eager_size is not None else known
            found = reduce(lambda left, right: left * right, varying if known == 1 else [*varying, known])
            self.counted.append(found)
            return found

        def shape_in_rewritten_code(value: Any) -> Any:
            mine = threading.get_ident() == thread and isinstance(value, value_type)
            return numbers(value, raw.fget(value)) if mine else convert_shape(value)

        def length(value: Any) -> int:
            sizes = raw.fget(value)
            if not sizes or sizes[0] < 0:
                raise TypeError("a dimension that varies has no length while the method is traced")
            return int(sizes[0])

        def iterate(value: Any) -> Iterator[Any]:
            return (value[index] for index in range(length(value)))

        def decided(value: Any, assume: bool = True) -> Any:
            """The truth of a question about sizes; the value itself where it is none."""
            if threading.get_ident() != thread or not isinstance(value, value_type):
                return value
            found = self.asked.decide(value, assume)
            return self._taken(value) if found is None else found

        def truth(value: Any) -> bool:
            found = decided(value)
            return found if isinstance(found, bool) else bool(truth_of_tensor(value))

        def branch(condition: Any, *rest: Any, **named: Any) -> Any:
            return convert_branch(decided(condition, not self.every_side), *rest, **named)

        def check(condition: Any, *message: Any) -> Any:
            return convert_check(decided(condition), *message)

        def has_grad() -> bool:
            # Only the function that the user calls asks this.
            if not self.asks_for_gradients and ours(sys._getframe(2)):
                raise TraceError("it asks whether gradients are recorded", "Ask outside of the method")
            return bool(asked())

        core, convert_shape = paddle.base.core, dy2static.Shape
        asked, truth_of_tensor = core._has_grad, value_type.__bool__
        convert_branch, convert_check = dy2static.IfElse, dy2static.Assert

        def arguments(block: Any) -> list[Any]:
            """As values of their own. The framework's point into a list that moves as it grows, and would stand for
            whatever lies there later: its own loops keep them, and so does the traceback of a loop that failed.
            """
            return [argument._clone() for argument in arguments_in_place(block)]

        arguments_in_place = paddle.pir.Block.args
        calls: Any = sys.modules["paddle.jit.dy2static.convert_call_func"]
        convert_zip, convert_enumerate = calls.convert_zip, calls.convert_enumerate

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

        def apart(function: Any) -> Any:
            """The framework ends the process where it is to take a tensor apart and does not know into how many."""

            def run(value: Any, axis: int = 0, *rest: Any, **named: Any) -> Any:
                if threading.get_ident() == thread and isinstance(value, value_type) and raw.fget(value)[axis] < 0:
                    raise TraceError("it takes a tensor apart along a dimension that varies")
                return function(value, axis, *rest, **named)

            return run

        def filled(sizes: Any, content: Any, *rest: Any, **named: Any) -> Any:
            """With a number that is written as text, such as "-inf", which only the eager operator reads.

            The framework ends the process where it is to take an array for a number.
            """
            if threading.get_ident() == thread:
                if getattr(content, "ndim", 0) and type(content).__module__ == "numpy":
                    remedy = "Make a tensor of it first: paddle.to_tensor(array)"
                    raise TraceError("it computes with an array of NumPy beside a tensor", remedy)
                if isinstance(content, str) and _NUMBER.fullmatch(content):
                    content = number(content)
            return fill(sizes, content, *rest, **named)

        def alike(value: Any, other: Any, *rest: Any, **named: Any) -> Any:
            """A truth, which the framework says is a float while a program is made."""
            found = equal_all(value, other, *rest, **named)
            mine = threading.get_ident() == thread and isinstance(found, value_type)
            return paddle.cast(found, "bool") if mine and found.dtype.name != "BOOL" else found

        def is_truth(value: Any) -> bool:
            return isinstance(value, value_type) and value.dtype.name == "BOOL" and not raw.fget(value)

        def of_truths(name: str, compute: Any) -> Any:
            """Two answers about sizes are numbers, of which the sum may be 2; of truths of tensors it is none."""

            def run(value: Any, other: Any) -> Any:
                if ours(sys._getframe(1)) and is_truth(value) and is_truth(other):
                    pair = decided(value), decided(other)
                    if all(isinstance(each, bool) for each in pair):
                        return getattr(int, name)(*map(int, pair))
                return compute(value, other)

            return run

        variable_tuple: Any = sys.modules["paddle.jit.dy2static.convert_operators"].VariableTuple
        operators: Any = paddle._C_ops
        taken_apart, fill = {name: getattr(operators, name) for name in ("unbind", "unstack")}, operators.full
        equal_all = operators.equal_all
        # As of an eager tensor; without them Python would ask for elements until one fails, and none does.
        protocol = {"__len__": length, "__iter__": iterate}
        sums = {name: vars(value_type)[name] for name in ("__add__", "__sub__", "__mul__") if name in vars(value_type)}
        added = {name: method for name, method in protocol.items() if name not in vars(value_type)}
        with static_op_arg_cast_guard(self.cast_hook):
            value_type.shape, value_type.size = property(shape), property(size)
            dy2static.Shape = shape_in_rewritten_code
            dy2static.IfElse, dy2static.Assert, value_type.__bool__ = branch, check, truth
            for name, method in added.items():
                setattr(value_type, name, method)
            for name, method in sums.items():
                setattr(value_type, name, of_truths(name, method))
            paddle.pir.Block.args = arguments
            calls.convert_zip, calls.convert_enumerate = zipped, numbered
            variable_tuple.__iter__ = pairs
            for name, function in taken_apart.items():
                setattr(operators, name, apart(function))
            operators.full, operators.equal_all = filled, alike
            core._has_grad = has_grad
            before, Watch.current = Watch.current, self
            try:
                yield
            finally:
                Watch.current = before
                paddle.pir.Block.args = arguments_in_place
                calls.convert_zip, calls.convert_enumerate = convert_zip, convert_enumerate
                del variable_tuple.__iter__
                for name, function in taken_apart.items():
                    setattr(operators, name, function)
                operators.full, operators.equal_all = fill, equal_all
                core._has_grad = asked
                value_type.shape, value_type.size = raw, elements
                dy2static.Shape = convert_shape
                dy2static.IfElse, dy2static.Assert = convert_branch, convert_check
                value_type.__bool__ = truth_of_tensor
                for name in added:
                    delattr(value_type, name)
                for name, method in sums.items():
                    setattr(value_type, name, method)

    def is_size(self, result: Any, among: Container[str] = _ANY) -> bool:
        """Is it computed from nothing but sizes and integers that vary, by some operators?"""
        if result.ndim:
            return False
        found, left = False, [result]
        while left:
            value = left.pop()
            if any(value.is_same(size) for size in self.sizes):
                found = True
                continue
            op = value.get_defining_op()
            if op is not None and op.name() == "pd_op.data" and op.attrs()["name"].startswith("n"):
                found = True
                continue
            if op is None or op.name() == "pd_op.data" or op.name().removeprefix("pd_op.") not in among:
                return False
            left += [operand for operand in op.operands_source() if operand.initialized()]
        return found


def number(text: str) -> int | float:
    """A number that is written as text. ValueError: it is none."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def is_number(value: Any) -> bool:
    """Is it an integer that Python's arithmetic makes of sizes or integers which vary, in the trace under way?

    What other operators make of them is a number or a tensor in the eager result: nothing tells which.
    """
    import paddle

    watch = Watch.current
    if watch is None or not isinstance(value, paddle.pir.Value) or value.dtype not in (paddle.int64, paddle.int32):
        return False
    return watch.is_size(value, _ARITHMETIC)


def recorded(value: Any) -> list[int]:
    """The sizes of a value, -1 where they vary, in the trace under way if there is one."""
    watch = Watch.current
    return list(value.shape if watch is None else watch.asked.recorded(value))

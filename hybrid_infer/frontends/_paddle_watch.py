"""What the tracer would let pass in silence, under watch for the time of a trace."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import exchanged
from hybrid_infer.frontends import _paddle_constants, _paddle_shown
from hybrid_infer.frontends._paddle_in_place import Reshaped
from hybrid_infer.frontends._paddle_sizes import Sizes

FOREIGN = "it uses a tensor that is neither an argument nor held by the layer"
FOREIGN_REMEDY = "Keep the tensor as an attribute of the layer, or pass it as an argument"
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


class Fraction(NamedTuple):
    """What an operator of Python made of sizes that vary, and of numbers (see ``_paddle_fractions``)."""

    value: Any
    name: str
    operands: tuple[Any, ...]


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
        self.fractions: list[Fraction] = []
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

        if not self.on() or not isinstance(value, paddle.Tensor):
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
        from paddle.pir.core import static_op_arg_cast_guard

        with static_op_arg_cast_guard(self.cast_hook), exchanged(*_paddle_shown.shown(self)):
            before, Watch.current = Watch.current, self
            try:
                yield
            finally:
                Watch.current = before

    def on(self) -> bool:
        """Is this the thread of the trace?"""
        return threading.get_ident() == self.thread

    def sees(self, value: Any) -> bool:
        """Is it a value of a program, on the thread of the trace?"""
        import paddle

        return self.on() and isinstance(value, paddle.pir.Value)

    def ours(self, frame: Any) -> bool:
        """Is it code of the program, or such of the framework's as goes on from a size alike?"""
        module, name = frame.f_globals.get("__name__") or "", frame.f_code.co_name
        return self.on() and (module.partition(".")[0] != "paddle" or (module, name) in _ASK)

    def numbers(self, value: Any, sizes: Any) -> Any:
        """The sizes as the user's code is to see them: of an eager tensor's class where all of them are known."""
        import paddle

        if -1 not in sizes:
            return paddle.Size(sizes)
        real = paddle.shape(value)
        self.sizes.append(real)
        return [real[axis] if size == -1 else size for axis, size in enumerate(sizes)]

    def decided(self, value: Any, assume: bool = True) -> Any:
        """The truth of a question about sizes; the value itself where it is none."""
        if not self.sees(value):
            return value
        found = self.asked.decide(value, assume)
        return self._taken(value) if found is None else found

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

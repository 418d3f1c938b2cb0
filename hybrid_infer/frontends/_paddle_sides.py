"""Branches and loops on the values of a tensor, under watch for what their sides do beside computing.

The tracer follows both sides of a branch, one after the other, and the body of a loop once. What rewritten code assigns
there itself (``self.h = ...`` too) is a variable of the branch: the framework puts it back before the other side, and
chooses afterwards. Whatever else a side changes, as in a method that it calls, the other side would find changed, and
so would all that follows, whichever of them a call is to take. A method that does so is refused.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import exchanged
from hybrid_infer._types import Tracee
from hybrid_infer.frontends._paddle_promoted import Promoted
from hybrid_infer.frontends._paddle_watch import is_number

_VALUES = "depends on the values of a tensor, and"
_REMEDY = "Have it compute the new value, and assign that behind it"
_RAISE_REMEDY = "Look at the values outside of the method"
_NONE_REMEDY = "Have a tensor there on both sides, or decide outside of the method"
_WORD_REMEDY = "Compare its sides with numbers, or use paddle.where"
#: How the names begin of what the framework itself leaves open on one side: what is returned there.
_FRAMEWORKS_OWN = "__"
_NUMBER_REMEDY = "Keep a tensor there, or decide outside of the method"


class _Variables(NamedTuple):
    """Of a branch or a loop, as the framework reads and assigns them; ``sides``: the functions that run them."""

    sides: list[Any]
    names: list[str]
    get: Callable[[], Any]
    put: Callable[[Any], Any]

    def named(self) -> list[tuple[str, Any]]:
        return [*zip(self.names, self.get() or (), strict=False)]

    def attributes(self) -> dict[tuple[str, int], Any]:
        """What those of them that are attributes hold, by name and place in a container."""
        import paddle

        flat = {name: paddle.utils.flatten([value]) for name, value in self.named() if "." in name}
        return {(name, place): value for name, values in flat.items() for place, value in enumerate(values)}


class Sides:
    """Watches them on one thread, for the time of a trace. `assigned`: globals that rewritten code has assigned."""

    def __init__(self, tracee: Tracee, assigned: Callable[[], list[str]]) -> None:
        self._tracee, self._assigned, self._thread = tracee, assigned, threading.get_ident()
        self._next: _Variables | None = None  # of the operator that is made next
        self._refused: TraceError | None = None
        self._promoted = Promoted()

    def refuse_numbers(self, results: list[Any]) -> None:
        """Raises where a result is a tensor that stands for one of several numbers."""
        if any(map(self._promoted.holds, results)):
            raise TraceError(f"a branch or loop {_VALUES} decides which number is returned", _NUMBER_REMEDY)

    def check(self) -> None:
        """Raises what the method itself has caught."""
        if self._refused is not None:
            raise self._refused

    @contextmanager
    def active(self) -> Iterator[None]:
        from paddle.jit import dy2static
        from paddle.jit.dy2static import convert_operators

        flow: Any = sys.modules["paddle.static.nn.control_flow"]
        places: list[tuple[Any, str, Any]] = [
            (convert_operators, "_run_paddle_cond", self._branch),
            (convert_operators, "_run_paddle_while", self._loop),
            (flow, "build_if_op", lambda make: self._making(make, f"a branch {_VALUES} one side")),
            (flow, "build_while_op", lambda make: self._making(make, f"a loop {_VALUES} its body")),
            (convert_operators, "cast_bool_if_necessary", self._truth),
            (dy2static, "AsDtype", lambda cast: self._cast(cast, convert_operators)),
            (dy2static, "Assert", lambda convert: self._assert(convert, convert_operators)),
            (dy2static, "And", lambda convert: self._logical(convert, "and")),
            (dy2static, "Or", lambda convert: self._logical(convert, "or")),
        ]
        with exchanged(*((module, name, watched(getattr(module, name))) for module, name, watched in places)):
            yield

    def _mine(self) -> bool:
        return threading.get_ident() == self._thread

    def _refuse(self, reason: str, place: str, remedy: str) -> None:
        raise self.noted(reason, place, remedy)

    def noted(self, reason: str, place: str, remedy: str) -> TraceError:
        """A refusal of the method, which `check` raises if the trace goes on all the same."""
        from hybrid_infer.frontends._paddle_reasons import named

        fault = TraceError(named(reason, place), remedy)
        self._refused = self._refused or fault
        return fault

    @contextmanager
    def unchanged(self, side: str, place: str, variables: _Variables) -> Iterator[None]:
        """Nothing but the variables may change inside, which is a `side`; these are as before afterwards."""
        before = variables.get()
        variables.put(before)  # what a getter gives for a tensor that was written to is another one
        since, assigned = self._tracee.since(variables.sides), self._assigned()
        yield
        variables.put(before)
        changed = since.changed() or next((f"the global {n}" for n in self._assigned() if n not in assigned), None)
        if changed is not None:
            self._refuse(f"{side} changes {changed}", place, _REMEDY)

    def _branch(self, convert: Callable[..., Any]) -> Callable[..., Any]:
        """An attribute to which a side assigns a number would be left a tensor."""
        import paddle

        def run(condition: Any, true: Any, false: Any, get: Any, put: Any, names: Any, pushed: Any = None) -> Any:
            if not self._mine():
                return convert(condition, true, false, get, put, names, pushed)
            variables = _Variables([true, false], _union(names, pushed), get, put)
            numbers: set[tuple[str, int]] = set()
            nothing: set[str] = set()
            counted: set[tuple[str, int]] = set()

            def noting(side: Callable[[], Any]) -> Callable[[], Any]:
                def noted() -> Any:
                    result = side()
                    numbers.update(_numbers(variables))
                    counted.update(self._promoted.places(variables, None if variables.names else result))
                    nothing.update(name for name, value in variables.named() if value is None)
                    return result

                return noted

            with self._announced(variables):
                result = convert(condition, noting(true), noting(false), get, put, names, pushed)
            self._promoted.add(variables, counted, None if variables.names else result)
            held = variables.attributes()
            for name, place in sorted(numbers):
                if isinstance(held.get((name, place)), paddle.pir.Value):
                    self._refuse(f"a branch {_VALUES} decides which number {name} is", _place(), _NUMBER_REMEDY)
            for name, value in variables.named():  # which the framework takes from the side that has one
                if name in nothing and value is not None and not name.startswith(_FRAMEWORKS_OWN):
                    self._refuse(f"a branch {_VALUES} decides whether {name} is None", _place(), _NONE_REMEDY)
            return result

        return run

    def _loop(self, convert: Callable[..., Any]) -> Callable[..., Any]:
        def run(condition: Any, body: Any, get: Any, put: Any, names: Any = None, pushed: Any = None) -> Any:
            if not self._mine():
                return convert(condition, body, get, put, names, pushed)
            variables = _Variables([condition, body], _union(names, pushed), get, put)
            for name, _ in sorted(_numbers(variables)):  # all variables of a loop become tensors
                self._refuse(f"a loop {_VALUES} decides which number {name} is", _place(), _NUMBER_REMEDY)
            counted = self._promoted.places(variables)
            with self._announced(variables):
                result = convert(condition, body, get, put, names, pushed)
            self._promoted.add(variables, counted)
            return result

        return run

    @contextmanager
    def _announced(self, variables: _Variables) -> Iterator[None]:
        self._next = variables
        try:
            yield
        finally:
            self._next = None

    def _making(self, make: Callable[..., Any], side: str) -> Callable[..., Any]:
        """The framework's function that makes the operator of a branch or a loop, of rewritten code or not."""

        def run(*given: Any) -> Any:
            if not self._mine():
                return make(*given)
            variables, self._next = self._next, None
            return _Operator(self, make(*given), side, _place(), variables or _none(_called_with()))

        return run

    def _truth(self, convert: Callable[..., Any]) -> Callable[..., Any]:
        """Of a tensor of numbers, eager is told whether it is more than 0, the tracer whether it is another than 0."""
        import paddle

        def run(value: Any) -> Any:
            if not self._mine() or not isinstance(value, paddle.pir.Value) or _is_bool(value) or is_number(value):
                return convert(value)
            if value.dtype == paddle.base.core.DataType.BFLOAT16:  # of which eager is told whether a bit is set
                return convert(value)
            return paddle.greater_than(value, paddle.zeros_like(value))

        return run

    def _cast(self, cast: Callable[..., Any], operators: Any) -> Callable[..., Any]:
        """``bool(tensor)``: the same; the tracer's own for other types."""

        def run(value: Any, dtype: str) -> Any:
            import paddle

            tensor = dtype == "bool" and isinstance(value, paddle.pir.Value)
            return operators.cast_bool_if_necessary(value) if tensor else cast(value, dtype)

        return run

    def _assert(self, convert: Callable[..., Any], operators: Any) -> Callable[..., Any]:
        """``assert tensor``: the same."""

        def run(value: Any, message: Any = "") -> Any:
            import paddle

            tensor = isinstance(value, paddle.pir.Value)
            return convert(operators.cast_bool_if_necessary(value) if tensor else value, message)

        return run

    def _logical(self, convert: Callable[..., Any], word: str) -> Callable[..., Any]:
        """``and``, ``or``: of tensors both sides are computed."""
        import paddle

        side = f"`{word}` {_VALUES} its right side"

        def run(left: Callable[[], Any], right: Callable[[], Any]) -> Any:
            if not self._mine():
                return convert(left, right)
            value = left()
            if not isinstance(value, paddle.pir.Value):
                return convert(lambda: value, right)

            place = _place()

            def watched() -> Any:
                with self.unchanged(side, place, _none([right])):
                    found = right()
                for each in (value, found):  # of which the framework makes a bool, or takes the other one
                    if not (_is_bool(each) or is_number(each)):
                        self._refuse(f"`{word}` {_VALUES} gives one of its sides", place, _WORD_REMEDY)
                return found

            return convert(lambda: value, watched)

        return run


class _Operator:
    """A branch or a loop whose blocks are watched while the method's own code is in them, which is the first time."""

    def __init__(self, sides: Sides, made: Any, side: str, place: str, variables: _Variables) -> None:
        self._sides, self._made, self._watched = sides, made, (side, place, variables)
        self._left = ["true_block", "false_block", "body"]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._made, name)
        if name not in self._left:
            return found
        self._left.remove(name)
        return lambda: self._side(found)

    @contextmanager
    def _side(self, enter: Callable[[], Any]) -> Iterator[Any]:
        side, place, _ = self._watched
        try:
            with enter() as block, self._sides.unchanged(*self._watched):
                yield block
        except TraceError:
            raise
        except Exception as fault:  # which the method may catch, as if each call would meet it
            self._sides.noted(f"{side} raises {type(fault).__name__}", place, _RAISE_REMEDY)
            raise


def _place() -> str:
    """The line of the user's that is at work."""
    import paddle

    from hybrid_infer.frontends import _paddle_reasons, _places

    return _places.of_frame(sys._getframe(1), paddle, _paddle_reasons.origin)


def _is_bool(value: Any) -> bool:
    import paddle

    if isinstance(value, paddle.pir.Value):
        return bool(value.dtype == paddle.base.core.DataType.BOOL)
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")  # NumPy's


def _called_with() -> list[Any]:
    """The functions that the program itself has given to the framework's ``cond`` or ``while_loop``."""
    frame: Any = sys._getframe(2)
    names = _OPERATORS.get(frame.f_code.co_name, ())
    return [frame.f_locals[name] for name in names if callable(frame.f_locals.get(name))]


_OPERATORS = {"cond": ("true_fn", "false_fn"), "while_loop": ("cond", "body")}


def _none(sides: list[Any]) -> _Variables:
    return _Variables(sides, [], lambda: None, lambda values: None)


def _union(*names: Any) -> list[str]:
    """In the order in which the framework's getters give them."""
    return sorted({name for each in names for name in each or ()})


def _numbers(variables: _Variables) -> set[tuple[str, int]]:
    found = variables.attributes().items()
    return {place for place, value in found if isinstance(value, (bool, int, float)) or is_number(value)}


def escaped(program: Any) -> str | None:
    """Where what a block computes is used outside of it, as ``file:line``; None where it is nowhere.

    Such a use is taken out: with it, the framework would end the process when the program is dropped.
    """
    from paddle.autograd.backward_utils import ValueSet
    from paddle.pir import fake_value

    from hybrid_infer.frontends._paddle_reasons import place_of_operator

    if not any(op.num_regions() for op in program.global_block().ops):
        return None
    visible, faults = ValueSet(), []

    def walk(block: Any) -> None:
        mine = [*block.args()]
        visible.update(mine)
        for op in block.ops:
            for operand in op.operands():
                source = operand.source()
                if source.initialized() and source not in visible:
                    operand.set_source(fake_value())
                    faults.append(place_of_operator(op))
            for inner in op.blocks():
                walk(inner)
            mine += op.results()
            visible.update(op.results())
        for value in mine:
            visible.discard(value)

    walk(program.global_block())
    return next(filter(None, faults), "") if faults else None

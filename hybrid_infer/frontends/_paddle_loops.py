"""Loops and branches that become blocks of a program: what is written to elements in them, and loops that need be none.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import exchanged
from hybrid_infer.frontends import _paddle_turns
from hybrid_infer.frontends._paddle_growing import Changing
from hybrid_infer.frontends._paddle_sizes import Sizes

_STEPS = 128  # of a recurrent cell that are written out
_TURNS = 32  # of a loop up to a constant tensor that are


@contextmanager
def watched(asked: Sizes, changing: Changing) -> Iterator[None]:
    """For the time of a trace on this thread. `asked`: tells which tensors are constants."""
    from paddle.jit.dy2static import convert_operators

    flow: Any = convert_operators
    calls: Any = sys.modules["paddle.jit.dy2static.convert_call_func"]
    recurrent: Any = sys.modules["paddle.nn.layer.rnn"]
    loops: Any = sys.modules["paddle.static.nn.control_flow"]
    written: Any = sys.modules["paddle.jit.dy2static"]
    places: list[tuple[Any, str, Callable[..., Any]]] = [
        (flow, "_run_paddle_cond", _branch),
        (flow, "_run_paddle_while", _loop),
        (calls, "convert_range", lambda convert: _counted(convert, asked)),
        (calls, "convert_len", _length),
        (loops, "build_while_op", lambda make: changing.opening(make, asked.recorded)),
        (recurrent, "_rnn_static_graph", lambda convert: _steps(convert, recurrent._rnn_dynamic_graph, asked)),
        (written, "Indexable", _paddle_turns.one_by_one),
        (written, "Len", _paddle_turns.as_long_as_there_are),
    ]
    thread = threading.get_ident()

    def mine(function: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            return (function if threading.get_ident() == thread else other)(*args, **kwargs)

        return run

    before = [getattr(module, name) for module, name, _ in places]
    with exchanged(*((m, n, mine(made(f), f)) for (m, n, made), f in zip(places, before, strict=True))):
        yield


def _branch(convert: Callable[..., Any]) -> Callable[..., Any]:
    def run(*given: Any, **named: Any) -> Any:
        with _of_its_own():
            return convert(*given, **named)

    return run


def _loop(convert: Callable[..., Any]) -> Callable[..., Any]:
    def run(condition: Any, body: Any, variables: Any, *rest: Any, **named: Any) -> Any:
        if any(isinstance(each, _paddle_turns.Turns) for each in inspect.getclosurevars(condition).nonlocals.values()):
            raise TraceError(
                "a loop through what is no tensor ends by the values of a tensor",
                "Compute all turns and choose among what they give (paddle.where)",
            )
        with _of_its_own():
            return convert(condition, _carrying(body, variables), variables, *rest, **named)

    return run


@contextmanager
def _of_its_own() -> Iterator[None]:
    """A block, after which nobody is told what was written to elements in it."""
    import paddle
    from paddle.jit.dy2static.parameter_recorder import _global_inplace_map

    key = program_key(paddle.static.default_main_program())
    before = _global_inplace_map.params_dict.get(key)
    kept = None if before is None else before.copy()
    try:
        yield
    finally:
        _global_inplace_map.params_dict.pop(key, None)
        if kept is not None:
            _global_inplace_map.params_dict[key] = kept


def _carrying(body: Callable[[], Any], variables: Callable[[], Any]) -> Callable[[], Any]:
    """The body of a loop, which writes to elements of what the framework carries on from turn to turn, or has made it:
    what a variable holds, not what a list or an attribute does.
    """
    import paddle
    from paddle.autograd.backward_utils import ValueDict
    from paddle.jit.dy2static.parameter_recorder import _global_inplace_map

    def run() -> Any:
        key = program_key(paddle.static.default_main_program())
        block = paddle.pir.get_current_insertion_point().block()
        known = _global_inplace_map.params_dict.get(key)
        before = ValueDict() if known is None else known.copy()
        carried = [each for each in paddle.utils.flatten(variables()) if isinstance(each, paddle.pir.Value)]
        result = body()
        for value in [*_global_inplace_map.params_dict.get(key, ())]:
            op = value.get_defining_op()
            made_here = op is not None and op.get_parent_block() == block
            if value not in before and not made_here and not any(value.is_same(each) for each in carried):
                raise TraceError(
                    "it writes, in a loop whose length varies, to elements of a tensor that no variable holds there",
                    "Give the tensor a name of its own before the loop",
                )
        return result

    return run


def _counted(convert: Callable[..., Any], asked: Sizes) -> Callable[..., Any]:
    """A loop up to a number that only looks like a tensor is one of Python's, as eagerly, unless it is long."""
    import paddle

    def run(*bounds: Any) -> Any:
        known = [asked.number(each) if isinstance(each, paddle.pir.Value) else each for each in bounds]
        numbers = [each for each in known if isinstance(each, int)]
        if len(numbers) == len(known) and len(range(*numbers)) <= _TURNS:
            return range(*numbers)
        return convert(*bounds)

    return run


def _length(convert: Callable[..., Any]) -> Callable[..., Any]:
    """How many parts a tensor has is the first of its sizes, and a number as that is: the framework has a tensor."""
    import paddle

    def run(values: Any) -> Any:
        tensor = isinstance(values, paddle.pir.Value) and values.is_dense_tensor_type() and values.ndim > 0
        return values.shape[0] if tensor else convert(values)

    return run


def _steps(
    loop_of_lists: Callable[..., Any], written_out: Callable[..., Any], asked: Sizes
) -> Callable[..., Any]:
    """Steps of a recurrent cell one after the other, as eagerly: the framework's own loop is of lists."""
    import paddle

    def run(cell: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        timed = named.get("time_major", rest[2] if len(rest) > 2 else False)
        steps = asked.recorded(paddle.utils.flatten(inputs)[0])[0 if timed else 1]
        return (written_out if 0 < steps <= _STEPS else loop_of_lists)(cell, inputs, *rest, **named)

    return run


def program_key(program: Any) -> Any:
    """By which the framework has what it knows of a program."""
    from paddle.jit.dy2static.program_translator import _program_hash

    return _program_hash(program)


def latest(value: Any) -> Any:
    """What stands for a value whose elements were written to, in the trace under way."""
    import paddle
    from paddle.jit.dy2static.parameter_recorder import _global_inplace_map

    found = _global_inplace_map.get(paddle.static.default_main_program(), value)
    return value if found is None else found

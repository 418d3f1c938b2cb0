"""Capture of one Paddle call: trace, purity, conversion, and which dims could be kept open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._types import Captured, Graph, TensorSpec, Tracee
from hybrid_infer.frontends import _paddle_narrowed as narrowed
from hybrid_infer.frontends._paddle_apart import undisturbed
from hybrid_infer.frontends._paddle_compare import compare
from hybrid_infer.frontends._paddle_complex import in_reals
from hybrid_infer.frontends._paddle_cut import Gap, cut, joined
from hybrid_infer.frontends._paddle_mode import static_mode
from hybrid_infer.frontends._paddle_onnx import convert, finish
from hybrid_infer.frontends._paddle_purity import impurities, needed, operators
from hybrid_infer.frontends._paddle_quiet import quiet
from hybrid_infer.frontends._paddle_reasons import forget, named, place_of_operator
from hybrid_infer.frontends._paddle_rewrite import rewrite
from hybrid_infer.frontends._paddle_trace import Trace, trace

_Dims = frozenset[tuple[int, int]]


def capture(tracee: Tracee, dynamic: _Dims, dynamic_ints: frozenset[int], dtype_of: Callable[[Any], str]) -> Captured:
    """See ``Frontend.capture``.

    The tracer never sees the size of a dynamic dim (it is -1), so it assumes nothing about it but what is reported
    as a condition: the answers to the method's own questions (see `_paddle_sizes`). What needs the number fails, and
    that dim is fixed to the example's size instead. Static dims are the caller's to compare.
    """
    forget()
    with undisturbed():
        captured, run = _widest(tracee, dynamic, dynamic_ints, dtype_of)
    tracee.recall(run)
    return captured


def _widest(
    tracee: Tracee, dynamic: _Dims, dynamic_ints: frozenset[int], dtype_of: Callable[[Any], str]
) -> tuple[Captured, Any]:
    """The capture with as many dims open as can be, and the run of the tracee that it was made by."""

    def attempt(open_dims: _Dims, every_side: bool = False) -> tuple[Captured, Any]:
        made = _Tracing(tracee, open_dims, dynamic_ints, known, every_side)
        return _captured(tracee, made, dynamic - open_dims, dtype_of), made.run

    known: list[Trace] = []
    why: dict[tuple[int, int], str] = {}
    if tracee.any_size and dynamic:  # one graph is to serve all sizes, if it can
        with suppress(TraceError):
            return attempt(dynamic, every_side=True)
    try:
        return attempt(dynamic)
    except TraceError as fault:
        if not dynamic:
            raise
        why = dict.fromkeys(dynamic, fault.reason)
    # The converter takes far longer than a trace, and is rarely at fault.
    traceable: _Dims = frozenset()
    for dim in sorted(dynamic):
        try:
            _Tracing(tracee, traceable | {dim}, dynamic_ints, known)
            traceable |= {dim}
        except TraceError as fault:
            why[dim] = fault.reason
    if traceable != dynamic:
        with suppress(TraceError):
            return _explained(attempt(traceable), why)
    captured, kept = attempt(frozenset()), frozenset[tuple[int, int]]()
    for dim in sorted(traceable) if len(traceable) > 1 else ():
        try:
            captured = attempt(kept | {dim})
            kept |= {dim}
        except TraceError as fault:
            why[dim] = fault.reason
    return _explained(captured, why)


def _explained(captured: tuple[Captured, Any], why: dict[tuple[int, int], str]) -> tuple[Captured, Any]:
    found, run = captured
    return replace(found, fixed_by={dim: why[dim] for dim in found.specialised}), run


class _Tracing:
    """A trace with some dims and integers left open, and what keeps it from standing for the method.

    Raises TraceError where one with the sizes of the example denies it, or stands for the method where this one does
    not: what a size decides is there on every side. `known` keeps that one for the next.
    """

    def __init__(
        self, tracee: Tracee, dims: _Dims, ints: frozenset[int], known: list[Trace], every_side: bool = False
    ) -> None:
        self.dims, self.ints = dims, ints
        self.traced = trace(tracee, dims, ints, every_side=every_side)
        written, state = self.traced.written, self.traced.state
        if (written or state) and tracee.may_write(written, state):
            tracee.written |= written
            tracee.state |= state
            self.traced = trace(tracee, dims, ints, every_side=every_side)
        self.run = tracee.noted()
        self.impure = _impure(self.traced)
        if not dims and not ints:
            return
        if not known:
            known.append(trace(tracee, frozenset(), frozenset()))
        if self.impure and not _impure(known[0]):
            raise TraceError("; ".join(self.impure[:3]))
        compare(self.traced, known[0])


def _impure(traced: Trace) -> tuple[str, ...]:
    found = (*traced.impure, *impurities(traced.program, traced.inputs, traced.labels, traced.outputs))
    return tuple(dict.fromkeys(found))


def _captured(tracee: Tracee, made: _Tracing, specialised: _Dims, dtype_of: Callable[[Any], str]) -> Captured:
    return Captured(
        graph=_no_graph() if made.impure else _graph(tracee, made.traced, made.ints, dtype_of),
        conditions=made.traced.conditions,
        dynamic=made.dims,
        specialised=specialised,
        dynamic_ints=made.ints,
        impure=made.impure,
    )


def _no_graph() -> Graph:
    """Of an impure method: nothing may run it, and the serialiser would drop what makes it impure."""
    return Graph(b"", (), (), (), (), ())


def _graph(tracee: Tracee, traced: Trace, numbers: frozenset[int], dtype_of: Callable[[Any], str]) -> Graph:
    def spec(value: Any) -> TensorSpec:
        return TensorSpec(dtype_of(value.dtype), tuple(None if size < 0 else int(size) for size in value.shape))

    if not traced.results:
        raise TraceError("it computes nothing from its arguments")
    specs = {name: spec(value) for name, value in zip(traced.names, traced.inputs, strict=True)}
    results = [spec(value) for value in traced.outputs]
    weights = [f"w{i}" for i in range(len(tracee.weights))]
    inputs: list[str | None] = [f"x{i}" for i in range(len(tracee.tensors))]
    inputs += [f"n{k}" for k in range(len(numbers))]
    gaps: list[Gap] = []
    try:
        made = convert(lambda path: gaps.extend(_serialise(traced, path)))
        narrowed.refuse(made, narrowed.casts(traced.program))
        converted = joined(made, gaps, len(results))
    except TraceError as fault:
        if "impl_ should not be null" in fault.reason:
            raise _without_an_input(traced, fault) from fault
        lacking = [op for op in operators(traced.program.global_block()) if fault.reason.endswith(_base(op.name()))]
        if "no form of" not in fault.reason or not lacking:
            raise
        inside = [inner for block in lacking[0].blocks() for inner in operators(block)]
        places = filter(None, map(place_of_operator, [lacking[0], *inside]))
        raise TraceError(named(fault.reason, next(places, "")), fault.remedy) from fault
    return finish(
        converted,
        weights,
        inputs,
        [specs[name] if name is not None else TensorSpec("int64", ()) for name in inputs],
        [specs[name] for name in weights],
        results,
        checked=traced.check is not None,
    )


def _without_an_input(traced: Trace, fault: TraceError) -> TraceError:
    """Of the converter's complaint about an operator that it does not name."""
    left = []
    for op in operators(traced.program.global_block()):
        if any(not value.initialized() for value in op.operands_source()):
            left.append(op)
    if not left:
        return fault
    names = " or ".join(dict.fromkeys(_base(op.name()).strip() for op in left))
    reason = f"paddle2onnx refused the program: it has no form of {names} without all of its inputs"
    return TraceError(named(reason, next(filter(None, map(place_of_operator, left)), "")), fault.remedy)


def _base(name: str) -> str:
    """An operator's name as messages have it, after the space that precedes it there."""
    return " " + name.removeprefix("pd_op.").rstrip("_")


def _widened(result: Any) -> Any:
    """A result in a type of which the converter takes constants: it makes a sum with zero of an assignment."""
    import paddle

    wider = {paddle.uint8: paddle.int32, paddle.int16: paddle.int32, paddle.float16: paddle.float32}
    if result.dtype not in wider:
        return result
    return paddle.cast(result.get_defining_op().operand_source(0), wider[result.dtype])


def _serialise(traced: Trace, path: str) -> list[Gap]:
    """Write the program where the converter reads it; gives where it was cut."""
    import paddle
    from paddle.static.pir_io import normalize_pir_program

    with quiet(), static_mode():
        held = in_reals(traced)
        rewrite(traced.program, traced.outputs)
        cuts, operands, gaps = cut(traced.program, traced.outputs)
        cuts += [each.stand_in for each in held]
        gaps += [each.gap() for each in held]
        # Inputs that no result depends on are refused where they are named.
        live = needed(traced.program, [*traced.outputs, *operands])
        inputs = [value for value in (*traced.inputs, *cuts) if value in live]
        with paddle.static.program_guard(traced.program, paddle.static.Program()):
            results = [_widened(value) for value in (*traced.outputs, *operands)]
        program = normalize_pir_program(traced.program, inputs, results)
        paddle.base.core.serialize_pir_program(program, path)
        return gaps

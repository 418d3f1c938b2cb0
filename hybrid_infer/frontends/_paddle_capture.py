"""Capture of one Paddle call: trace, purity, conversion, and which dims could be kept open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._types import Captured, Graph, TensorSpec, Tracee
from hybrid_infer.frontends._paddle_compare import compare
from hybrid_infer.frontends._paddle_onnx import convert, finish
from hybrid_infer.frontends._paddle_purity import impurities, needed, operators
from hybrid_infer.frontends._paddle_reasons import named, place_of_operator
from hybrid_infer.frontends._paddle_rewrite import rewrite
from hybrid_infer.frontends._paddle_trace import Trace, quiet, trace

_Dims = frozenset[tuple[int, int]]


def capture(tracee: Tracee, dynamic: _Dims, dynamic_ints: frozenset[int], dtype_of: Callable[[Any], str]) -> Captured:
    """See ``Frontend.capture``.

    The tracer never sees the size of a dynamic dim (it is -1), so it cannot assume anything about it, and there are
    no conditions to report: what needs the number fails, and that dim is fixed to the example's size instead.
    Static dims are the caller's to compare.
    """
    try:
        return _attempt(tracee, dynamic, dynamic_ints, frozenset(), dtype_of)
    except TraceError:
        if not dynamic:
            raise
    captured = _attempt(tracee, frozenset(), dynamic_ints, dynamic, dtype_of)
    kept: _Dims = frozenset()
    for dim in sorted(dynamic) if len(dynamic) > 1 else ():
        try:
            captured = _attempt(tracee, kept | {dim}, dynamic_ints, dynamic - kept - {dim}, dtype_of)
        except TraceError:
            continue
        kept |= {dim}
    return captured


def _attempt(
    tracee: Tracee, dynamic: _Dims, numbers: frozenset[int], specialised: _Dims, dtype_of: Callable[[Any], str]
) -> Captured:
    traced = trace(tracee, dynamic, numbers)
    if dynamic or numbers:
        compare(traced, trace(tracee, frozenset(), frozenset()))
    impure = (*traced.impure, *impurities(traced.program, traced.inputs, traced.labels, traced.results))
    graph = _graph(tracee, traced, numbers, dtype_of) if not impure else _no_graph()
    return Captured(
        graph=graph,
        dynamic=dynamic,
        specialised=specialised,
        dynamic_ints=numbers,
        impure=tuple(dict.fromkeys(impure)),
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
    results = [spec(value) for value in traced.results]
    weights = [f"w{i}" for i in range(len(tracee.weights))]
    inputs: list[str | None] = [f"x{i}" for i in range(len(tracee.tensors))]
    inputs += [f"n{i}" if i in numbers else None for i in range(len(tracee.ints))]
    try:
        converted = convert(lambda path: _serialise(traced, path))
    except TraceError as fault:
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
    )


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


def _serialise(traced: Trace, path: str) -> None:
    import paddle
    from paddle.base import framework
    from paddle.static.pir_io import normalize_pir_program

    with quiet(), framework._dygraph_guard(None):
        rewrite(traced.program, traced.results)
        # Inputs that no result depends on are refused where they are named.
        live = needed(traced.program, traced.results)
        inputs = [value for value in traced.inputs if value in live]
        with paddle.static.program_guard(traced.program, paddle.static.Program()):
            results = [_widened(value) for value in traced.results]
        program = normalize_pir_program(traced.program, inputs, results)
        paddle.base.core.serialize_pir_program(program, path)

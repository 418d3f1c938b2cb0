"""What a program computes for a call against what the eager method answers: values, structure, types and devices."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

from hybrid_infer import _rewriting
from hybrid_infer._log import tell
from hybrid_infer._options import Options
from hybrid_infer._route import Compiled
from hybrid_infer._signature import Signatures
from hybrid_infer._types import carrier
from hybrid_infer._unsupported import Unsupported
from hybrid_infer.checks import _halves, _verify
from hybrid_infer.state import _given
from hybrid_infer.state._carry import ASSIGNED, Carry


def _what(carries: Sequence[Carry], eager: Any, tensor: Any) -> str:
    """A tensor among what a method gives: it may be one that it assigns."""
    for number, place, after in eager[1] if type(eager) is _given.Returned else ():
        if place is ASSIGNED and after is tensor:
            return f"what it assigns to {carries[number].name}"
    return "a result"


def check(
    frontend: Any, route: Compiled, tensors: Any, ints: Any, eager: Any, options: Options, given: Any = (),
    before: Any = None, again: bool = False,
) -> None:  # fmt: skip
    """Compare a route with the eager result of the same call, and note how far they are apart.

    `tensors`: those that the eager method worked on; `given`: the objects that it was given (see `_given`); `before`:
    the tensors as they were before that, where it has written to some; `again`: the plan was right at other sizes.

    Raises Disagreement, Inconclusive or EngineError; the last also where a branch goes another way than the graph takes
    for granted, which is asked before anything else: what the other side gives need not be like it at all.
    """
    version = route.held.version
    early = route.compute(before or tensors, ints) if version.sides else None
    signatures = Signatures(frontend)
    try:
        results = signatures.results(eager, _is_int, given=given)
    except Unsupported as fault:
        raise _verify.Unlike(str(fault)) from fault
    if without_ints(results.tree) != without_ints(version.results):
        raise _verify.Unlike("the eager result has another structure than the captured one")
    computed = route.compute(before or tensors, ints) if early is None else early
    try:
        mine = signatures.results(route.assemble(computed, tensors, given), _is_int, given=given)
    except Exception as fault:  # of the user's class: its constructor asks for more than its fields
        raise _verify.Unlike(f"the result cannot be put together again: {fault}") from fault
    if without_ints(mine.tree) != without_ints(results.tree):
        raise _verify.Unlike("a class of the result does not keep what it is given")
    if mine.ints != results.ints:
        raise _verify.Disagreement(f"integers among the results are {mine.ints}, the eager ones {results.ints}")
    left: list[Any] = []
    right: list[Any] = []
    dtypes: list[str] = []
    numbers: list[int] = []  # of the graph's outputs
    gaps: set[int] = set()
    others = [*tensors, *route.weights]
    for origin, expected, own in zip(route.tensor_sources, results.tensors, mine.tensors, strict=True):
        if origin[0] != "y":
            if expected is not own:
                raise _verify.Unlike("a result that was an input at capture is not that object")
            if origin[0] == "x" and not own.is_contiguous():
                gaps.add(origin[1])
            continue
        (dtype, _, device), (own_dtype, _, own_device) = frontend.describe(expected), frontend.describe(own)
        if (dtype, device) != (own_dtype, own_device):
            raise _verify.Disagreement(f"a result is {own_dtype} on {own_device}, the eager one {dtype} on {device}")
        if frontend.shares_memory(expected, others):
            what = _what(version.carries, eager, expected)
            raise _verify.Unlike(f"{what} is a view of an argument or a weight, which a static graph copies")
        # A copy of what it has written to a weight is one of that weight, which may require a gradient.
        if frontend.requires_grad(expected) and not frontend.grad_enabled() and not route.written:
            raise _verify.Unlike("a result requires a gradient, where none are recorded")
        export = frontend.exporter(dtype, carrier(dtype))
        left.append(export(expected))
        right.append(export(own))
        dtypes.append(dtype)
        numbers.append(origin[1])
    kinds = {t.dtype for t in version.tensors} | {w.dtype for w in version.weights}
    floats = not kinds.isdisjoint(_verify.TOLERANCES)
    precision = _rewriting.precision(options, route.program.engine)
    compare = functools.partial(
        _verify.compare, left, right, dtypes, from_floats=floats, rtol=options.rtol, atol=options.atol
    )
    if options.rtol is None and options.atol is None:
        if again:
            compare = functools.partial(compare, terms=lambda: _terms(frontend, before or tensors))
        on_gpu = any(spec.device != "cpu" for spec in version.tensors)
        tf32 = frontend.tf32() if on_gpu else _halves.NONE
        worst = _halves.compare(compare, precision, lambda: route.held.graph().model, numbers, tf32)
    else:
        worst = compare(precision=precision)
    route.held.with_gaps.update(dict.fromkeys(gaps, True))
    errors, engine, name = route.held.ledger.errors, route.program.engine, version.method
    text = "%s: largest difference from eager %.3g"
    tell(logging.DEBUG, "verified", name, text, name, worst, engine=engine, error=worst)
    errors[engine] = max(worst, errors.get(engine, 0.0))


def _terms(frontend: Any, tensors: Any) -> tuple[int, float]:
    """The number of elements of the largest tensor of floats, and the largest finite value of any."""
    import numpy as np

    number, largest = 0, 0.0
    for tensor in tensors:
        dtype = frontend.describe(tensor)[0]
        if dtype in _verify.TOLERANCES:
            values = np.abs(frontend.exporter(dtype, carrier(dtype))(tensor))
            number = max(number, values.size)
            largest = max(largest, float(np.max(values, initial=0.0, where=np.isfinite(values))))
    return number, largest


def _is_int(value: Any) -> bool:
    return type(value) is int


def without_ints(node: Any) -> Any:
    """A tree in which an integer is an integer, whether it was computed or constant at capture."""
    if not isinstance(node, list):
        return node
    if node[:1] == ["i"] or node[:2] == ["c", "int"]:
        return ["i"]
    return [without_ints(child) for child in node]

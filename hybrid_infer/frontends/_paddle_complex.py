"""Complex numbers of a program as pairs of real ones: paddle2onnx knows no complex type, and engines have none.

A program's own inputs and results of complex numbers become real ones with the two parts along a last axis, as graphs
have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends import _paddle_constants
from hybrid_infer.frontends._paddle_cut import Gap
from hybrid_infer.frontends._paddle_purity import needed, operators
from hybrid_infer.frontends._paddle_terms import in_place_of
from hybrid_infer.frontends._paddle_trace import Trace

_PARTS = {"COMPLEX64": "float32", "COMPLEX128": "float64"}
#: What makes one value of several, or several of one: what reads it, or writes it, does so for them.
_LISTS = ("builtin.combine", "builtin.split")


def is_complex(value: Any) -> bool:
    return bool(value.is_dense_tensor_type()) and value.dtype.name in _PARTS


def part_type(value: Any) -> str:
    """The element type of the parts of complex numbers."""
    return _PARTS[value.dtype.name]


def stacked(values: Sequence[Any], axis: int) -> Any:
    """Values along an axis of their own. The converter takes some of one element for scalars, and stacks those."""
    import paddle

    wide = [paddle.unsqueeze(value, axis) if value.shape else paddle.reshape(value, [1]) for value in values]
    return paddle.concat(wide, axis)


@dataclass
class Held:
    """An array that stands in a graph, and the input of the program that stands for it until it does."""

    name: str
    stand_in: Any
    array: Any

    def gap(self) -> Gap:
        import onnx

        def nodes(given: Sequence[str], made: Sequence[str]) -> list[Any]:
            return [onnx.helper.make_node("Constant", [], made, value=onnx.numpy_helper.from_array(self.array))]

        return Gap([], [self.name], nodes)


class Lowering:
    """A program whose complex values become pairs, in static mode."""

    def __init__(self) -> None:
        from paddle.autograd.backward_utils import ValueDict

        self._pairs: Any = ValueDict()
        self._held: dict[tuple[Any, ...], Held] = {}

    def parts(self, value: Any) -> tuple[Any, Any]:
        """The real and the imaginary part of a value that has been lowered, or is real."""
        import paddle

        if not is_complex(value):
            return value, paddle.zeros_like(value)
        if value not in self._pairs:
            raise TraceError("a branch or loop gives complex numbers", "Leave that part outside")
        found: tuple[Any, Any] = self._pairs[value]
        return found

    def set(self, value: Any, parts: Any) -> None:
        """What stands for a value from now on: a pair for one of complex numbers."""
        if is_complex(value):
            self._pairs[value] = tuple(parts)
        else:
            value.replace_all_uses_with(parts)

    def held(self, array: Any, dtype: Any) -> Any:
        """A constant of any size: the framework would write each number into the program's text."""
        import numpy
        import paddle

        array = numpy.ascontiguousarray(array, dtype=dtype.name.lower())
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._held:
            with _paddle_constants.first():
                name = f"held{len(self._held)}"
                self._held[key] = Held(name, paddle.static.data(name, list(array.shape), dtype), array)
        return self._held[key].stand_in

    def constants(self) -> list[Held]:
        return list(self._held.values())


def in_reals(traced: Trace) -> list[Held]:
    """Lower what the results depend on, in place. Raises TraceError."""
    import paddle

    program = traced.program
    live = needed(program, traced.outputs)
    if not any(is_complex(value) for value in live if value.is_dense_tensor_type()):
        return []
    at = Lowering()
    with paddle.static.program_guard(program, paddle.static.Program()):
        for place, value in enumerate(traced.inputs):
            if is_complex(value):
                traced.inputs[place] = _input(value, traced.names[place], at)
        for op in _of_complex(program, live):
            _lower(op, at)
        for place, value in enumerate(traced.results):
            if is_complex(value):
                traced.results[place] = stacked(at.parts(value), -1)
    _drop(program.global_block())
    return at.constants()


def _input(value: Any, name: str, at: Lowering) -> Any:
    import paddle

    with _paddle_constants.first():
        made = paddle.static.data(name, [*value.shape, 2], part_type(value))
        paddle.pir.set_insertion_point_after(made.get_defining_op())
        at.set(value, paddle.unbind(made, -1))
    return made


def _of_complex(program: Any, live: Any) -> Iterator[Any]:
    """The operators that read or give complex numbers, those in branches and loops included."""
    for op in list(program.global_block().ops):
        if op.name() == "pd_op.data" or not (not op.results() or any(value in live for value in op.results())):
            continue
        for each in [op, *(inner for block in op.blocks() for inner in operators(block))]:
            if each.name() not in _LISTS and any(map(is_complex, [*_read(each), *each.results()])):
                yield each


def _read(op: Any) -> Iterator[Any]:
    """The values that an operator reads, those of lists one by one."""
    for value in op.operands_source():
        source = value.get_defining_op() if value.initialized() else None
        if source is not None and source.name() == "builtin.combine":
            yield from source.operands_source()
        elif value.initialized():
            yield value


def _lower(op: Any, at: Lowering) -> None:

    from hybrid_infer.frontends._paddle_complex_forms import FORMS
    from hybrid_infer.frontends._paddle_reasons import named, place_of_operator

    name = op.name().removeprefix("pd_op.").rstrip("_")
    form = FORMS.get(name)
    if form is None:
        reason = f"it computes {name} of complex numbers, of which there is no form in real ones"
        if name in ("if", "while", "cf.yield"):
            reason = "a branch or loop gives complex numbers"
        raise TraceError(named(reason, place_of_operator(op)), "Leave that part outside")
    with in_place_of(op, f"{name} of complex numbers"):
        found = form(op, at)
    for value, parts in zip(_given(op), found, strict=True):
        at.set(value, parts)


def _given(op: Any) -> list[Any]:
    """The values that an operator gives, those of a list one by one."""
    result = op.result(0)
    if result.is_dense_tensor_type():
        return [result]
    return [value for reader in result.all_used_ops() for value in reader.results()]


def _drop(block: Any) -> None:
    """Drop the operators on complex numbers: nothing reads what they give any more."""
    for op in reversed(block.ops):
        for each in op.blocks():
            _drop(each)
        values = [*_read(op), *op.results()]
        unread = op.results() and all(value.use_empty() for value in op.results())
        if unread and (op.name() in _LISTS or any(map(is_complex, values))):
            block.remove_op(op)

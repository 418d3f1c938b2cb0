"""Operators on complex numbers in terms of the real and the imaginary parts: what makes them, and moves them about.

A form takes an operator and gives what stands for each of its results: a pair, or a value of real numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends import _paddle_complex_arithmetic, _paddle_fourier
from hybrid_infer.frontends._paddle_recurrent import parts
from hybrid_infer.frontends._paddle_windows import constant

if TYPE_CHECKING:
    from hybrid_infer.frontends._paddle_complex import Lowering

_Form = Callable[[Any, "Lowering"], list[Any]]


def _part_by_part(op: Any, at: Lowering) -> list[Any]:
    """The same operator twice, with one part of each complex value that it reads."""
    return [tuple(_of_part(op, at, place, op.result(0).shape) for place in (0, 1))]


def _of_part(op: Any, at: Lowering, place: int, shape: Any) -> Any:
    from paddle.base.libpaddle import pir

    from hybrid_infer.frontends._paddle_complex import is_complex

    mapped: Any = pir.IrMapping()
    kind: Any = None
    for value in op.operands_source():
        part = value
        if value.initialized() and is_complex(value):
            part = at.parts(value)[place]
            kind = part.type()
        mapped.add(value, part)
    made = op.clone(mapped, pir.CloneOptions(True, True, False)).result(0)
    made.set_type(pir.create_shaped_type(kind, shape))
    return made


def _of_sizes(op: Any, at: Lowering) -> list[Any]:
    """What is told of the sizes alone; the operator itself goes on to tell it, of one part."""
    import paddle

    real, _ = at.parts(op.operand_source(0))
    name = op.name().removeprefix("pd_op.")
    return [getattr(paddle._C_ops, name)(real)]


def _made(op: Any, at: Lowering) -> list[Any]:
    """``complex``, of two tensors that are spread to the sizes of both."""
    import paddle

    real, imaginary = op.operands_source()
    if list(real.shape) != list(imaginary.shape) or -1 in real.shape:
        real, imaginary = paddle.broadcast_tensors([real, imaginary])
    return [(real, imaginary)]


def _as_complex(op: Any, at: Lowering) -> list[Any]:
    import paddle

    value = op.operand_source(0)
    last = len(value.shape) - 1
    return [tuple(paddle._C_ops.slice(value, [last], [n], [n + 1], [1], [last]) for n in (0, 1))]


def _as_real(op: Any, at: Lowering) -> list[Any]:
    from hybrid_infer.frontends._paddle_complex import stacked

    return [stacked(at.parts(op.operand_source(0)), -1)]


def _cast(op: Any, at: Lowering) -> list[Any]:
    import paddle

    from hybrid_infer.frontends._paddle_complex import is_complex, part_type

    value, result = op.operand_source(0), op.result(0)
    if result.dtype.name == "BOOL":
        return [paddle.logical_or(*(paddle.cast(part, "bool") for part in at.parts(value)))]
    if not is_complex(result):
        return [paddle.cast(at.parts(value)[0], result.dtype)]
    if is_complex(value):
        return [tuple(paddle.cast(part, part_type(result)) for part in at.parts(value))]
    real = paddle.cast(value, part_type(result))
    return [(real, paddle.zeros_like(real))]


def _full(op: Any, at: Lowering) -> list[Any]:
    import paddle

    from hybrid_infer.frontends._paddle_complex import part_type

    value, shape, dtype = complex(op.attrs()["value"]), op.attrs()["shape"], part_type(op.result(0))
    return [tuple(paddle.full(shape, part, dtype) for part in (value.real, value.imag))]


def _full_with_tensor(op: Any, at: Lowering) -> list[Any]:
    """Of computed sizes."""
    import paddle

    from hybrid_infer.frontends._paddle_complex import is_complex, part_type

    value, sizes = op.operands_source()
    dtype = part_type(op.result(0))
    found = at.parts(value) if is_complex(value) else (paddle.cast(value, dtype), paddle.zeros([1], dtype))
    return [tuple(paddle.expand(paddle.reshape(part, [1]), sizes) for part in found)]


def _full_like(op: Any, at: Lowering) -> list[Any]:
    import paddle

    from hybrid_infer.frontends._paddle_complex import is_complex, part_type

    value, number = op.operand_source(0), constant(op.operand_source(1))
    if number is None:
        raise TraceError("complex numbers are made of one that is computed")
    like = at.parts(value)[0] if is_complex(value) else value
    if not is_complex(op.result(0)):
        return [paddle.full_like(like, float(number), op.result(0).dtype)]
    dtype = part_type(op.result(0))
    return [tuple(paddle.full_like(like, part, dtype) for part in (float(number), 0.0))]


def _sum(op: Any, at: Lowering) -> list[Any]:
    import paddle

    from hybrid_infer.frontends._paddle_complex import part_type

    value, axes = op.operands_source()
    dtype = part_type(op.result(0))
    return [
        tuple(
            paddle._C_ops.sum(paddle.cast(part, dtype), axes, getattr(paddle, dtype), op.attrs()["keepdim"])
            for part in at.parts(value)
        )
    ]


def _pad(op: Any, at: Lowering) -> list[Any]:
    """The numbers behind the edge are real ones."""
    import paddle

    value, number = op.operands_source()
    real, imaginary = at.parts(value)
    widths = list(op.attrs()["paddings"])
    return [(paddle._C_ops.pad(real, widths, number), paddle._C_ops.pad(imaginary, widths, 0.0))]


def _pad_image(op: Any, at: Lowering) -> list[Any]:
    import paddle

    value, widths = op.operands_source()
    mode, number, order = (op.attrs()[key] for key in ("mode", "pad_value", "data_format"))
    found = zip(at.parts(value), (number, 0.0), strict=True)
    return [tuple(paddle._C_ops.pad3d(part, widths, mode, behind, order) for part, behind in found)]


def _joined(op: Any, at: Lowering, join: Callable[[list[Any]], Any]) -> list[Any]:
    """Of a list of tensors."""
    pairs = [at.parts(value) for value in parts(op.operand_source(0))]
    return [tuple(join([pair[place] for pair in pairs]) for place in (0, 1))]


def _concatenated(op: Any, at: Lowering) -> list[Any]:
    import paddle

    axis = constant(op.operand_source(1))
    if axis is None:
        raise TraceError("complex numbers are joined along an axis that is computed")
    axis = int(axis[0] if isinstance(axis, (list, tuple)) else axis)
    return _joined(op, at, lambda given: paddle.concat(given, axis))


def _stacked(op: Any, at: Lowering) -> list[Any]:
    from hybrid_infer.frontends._paddle_complex import stacked

    return _joined(op, at, lambda given: stacked(given, op.attrs()["axis"]))


def _added(op: Any, at: Lowering) -> list[Any]:
    import paddle

    return _joined(op, at, paddle.add_n)


def _unbound(op: Any, at: Lowering) -> list[Any]:
    import paddle

    found = (paddle.unbind(part, op.attrs()["axis"]) for part in at.parts(op.operand_source(0)))
    return list(zip(*found, strict=True))


FORMS: dict[str, _Form] = {
    **dict.fromkeys(
        (
            "add", "assign", "cumsum", "diagonal", "expand", "flatten", "flip", "gather", "gather_nd", "index_put",
            "index_select", "mean", "reshape", "roll", "set_value_with_tensor", "share_data", "slice", "squeeze",
            "strided_slice", "subtract", "tile", "transpose", "tril", "triu", "unsqueeze", "where",
        ),
        _part_by_part,
    ),
    **dict.fromkeys(("numel", "shape", "shape64"), _of_sizes),
    **_paddle_complex_arithmetic.FORMS,
    **_paddle_fourier.FORMS,
    "add_n": _added,
    "as_complex": _as_complex,
    "as_real": _as_real,
    "cast": _cast,
    "complex": _made,
    "concat": _concatenated,
    "full": _full,
    "full_like": _full_like,
    "full_with_tensor": _full_with_tensor,
    "imag": lambda op, at: [at.parts(op.operand_source(0))[1]],
    "pad": _pad,
    "pad3d": _pad_image,
    "real": lambda op, at: [at.parts(op.operand_source(0))[0]],
    "stack": _stacked,
    "sum": _sum,
    "unbind": _unbound,
}  # fmt: skip

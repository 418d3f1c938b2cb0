"""Inverses, determinants, systems of equations and powers of small matrices, written out in operators that ONNX has.

By elimination, with the largest number of a column as its pivot, as LAPACK and Eigen have it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from hybrid_infer.frontends._paddle_terms import is_float, negative, number, unless

_ROWS = 8  # of a matrix that is eliminated


def _suits(value: Any) -> bool:
    sizes = list(value.shape)
    return is_float(value) and len(sizes) > 1 and sizes[-1] == sizes[-2] and 0 < sizes[-1] <= _ROWS


def _rows(value: Any) -> list[Any]:
    import paddle

    count = value.shape[-2]
    return list(paddle.split(value, count, value.ndim - 2)) if count > 1 else [value]


def _at(row: Any, place: int) -> Any:
    import paddle

    return paddle.slice(row, [row.ndim - 1], [place], [place + 1])


def _eliminated(rows: list[Any]) -> tuple[list[Any], Any]:
    """Rows of which each has zeros before its pivot, and the sign of the order that they are in."""
    import paddle

    sign = paddle.ones_like(_at(rows[0], 0))
    for k in range(len(rows)):
        for i in range(k + 1, len(rows)):  # the largest comes first; the order of the others does not matter
            larger = paddle.abs(_at(rows[i], k)) > paddle.abs(_at(rows[k], k))
            rows[k], rows[i] = paddle.where(larger, rows[i], rows[k]), paddle.where(larger, rows[k], rows[i])
            sign = paddle.where(larger, negative(sign), sign)
        for i in range(k + 1, len(rows)):
            rows[i] = rows[i] - (_at(rows[i], k) / _at(rows[k], k)) * rows[k]
    return rows, sign


def _solved(matrix: Any, right: Any) -> Any:
    """What times the matrix gives the right side, which has a row for each of the matrix's; none where a pivot is 0."""
    import paddle

    size = matrix.shape[-1]
    both = [paddle.concat(pair, -1) for pair in zip(_rows(matrix), _rows(right), strict=True)]
    rows, _ = _eliminated(both)
    found: dict[int, Any] = {}
    for i in reversed(range(size)):
        rest = paddle.slice(rows[i], [rows[i].ndim - 1], [size], [2**31 - 1])
        rest = reduce(lambda left, j: left - _at(rows[i], j) * found[j], range(i + 1, size), rest)
        found[i] = rest / _at(rows[i], i)
    pivots = paddle.concat([_at(rows[i], i) for i in range(size)], -1) if size > 1 else _at(rows[0], 0)
    without = paddle.logical_not(paddle.abs(pivots) > number(0, matrix))  # NaN among them
    return unless(without, paddle.concat([found[i] for i in range(size)], -2) if size > 1 else found[0])


def _inverse(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import numpy as np
    import paddle

    value = inputs[0]
    if not _suits(value):
        return None
    eye = paddle.cast(paddle.assign(np.eye(value.shape[-1], dtype="float32")), value.dtype)
    return _solved(value, paddle.zeros_like(value) + eye)


def _solve(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of as many matrices as right sides."""
    import paddle

    value, right = inputs
    if not _suits(value) or right.dtype != value.dtype:
        return None
    vector = right.ndim == 1 and value.ndim == 2
    right = paddle.unsqueeze(right, -1) if vector else right
    if right.ndim != value.ndim or list(right.shape[:-2]) != list(value.shape[:-2]) or -1 in value.shape[:-2]:
        return None
    found = _solved(value, right)
    return paddle.squeeze(found, [-1]) if vector else found


def _det(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value = inputs[0]
    if not _suits(value):
        return None
    rows, sign = _eliminated(_rows(value))
    # Below a pivot of 0 there is nothing that is larger: the matrix has no inverse.
    found = reduce(paddle.multiply, [_at(row, k) for k, row in enumerate(rows)], sign)
    pivots = [_at(row, k) == number(0, value) for k, row in enumerate(rows)]
    nothing = reduce(paddle.logical_or, pivots)
    return paddle.squeeze(paddle.where(nothing, number(0, value), found), [-2, -1])


def _matrix_power(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """By squares, as Paddle does."""
    import paddle

    value, power = inputs[0], attributes["n"]
    if not is_float(value) or not power or (power < 0 and not _suits(value)):
        return None
    square, left = (_inverse(op, [value], {}) if power < 0 else value), abs(power)
    found = None
    while left:
        if left % 2:
            found = square if found is None else paddle.matmul(found, square)
        left //= 2
        square = paddle.matmul(square, square) if left else square
    return paddle.assign(found)


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "inverse": _inverse,
    "solve": _solve,
    "det": _det,
    "matrix_power": _matrix_power,
}

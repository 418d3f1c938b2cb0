"""Fourier transforms as products with matrices of roots of unity: paddle2onnx has one form of one of them.

A length of many factors is taken apart into two, n = a * b, as J. W. Cooley and J. W. Tukey do it (An Algorithm for the
Machine Calculation of Complex Fourier Series, 1965): transforms of length a, a rotation of each element, and transforms
of length b, the last two as one product where its matrix is not too large. ONNX has an operator of its own, but ONNX
Runtime's has two digits fewer for lengths that are no power of two, and takes ten times as long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends._paddle_windows import lengths

if TYPE_CHECKING:
    from hybrid_infer.frontends._paddle_complex import Lowering

_ALONE = 64  # up to this length, one product is as close to the sum as two are, and faster
_ELEMENTS = 2**20  # of a matrix


def from_reals(op: Any, at: Lowering) -> list[Any]:
    """``fft_r2c``: along the last of the axes from real numbers, along the others from complex ones."""
    attributes, value = op.attrs(), op.operand_source(0)
    *others, last = _axes(op, value)
    size = _size(op, value, last)
    kept = size // 2 + 1 if attributes["onesided"] else size
    sign = -1 if attributes["forward"] else 1
    scale = _scale(attributes, [_size(op, value, axis) for axis in (*others, last)])
    real, imaginary = _transformed(op, at, [value], last, _Matrices(size, kept, sign, scale, False, False))
    imaginary = _exactly_real(at, imaginary, last, size)
    for axis in others:
        real, imaginary = _full(op, at, [real, imaginary], axis, sign, 1.0)
    return [(real, imaginary)]


def _exactly_real(at: Lowering, imaginary: Any, axis: int, size: int) -> Any:
    """Of real numbers, the constant part and the highest frequency of an even length have no imaginary part at all."""
    import numpy
    import paddle

    kept = int(imaginary.shape[axis])
    ones = numpy.ones([kept if each == axis else 1 for each in range(len(imaginary.shape))])
    for place in {0, size // 2} if size % 2 == 0 else {0}:
        if place < kept:
            ones.reshape(-1)[place] = 0.0
    mask = at.held(ones, imaginary.dtype)
    return paddle.where(mask > 0, imaginary, paddle.zeros([], imaginary.dtype))


def from_complex(op: Any, at: Lowering) -> list[Any]:
    """``fft_c2c``."""
    attributes, value = op.attrs(), op.operand_source(0)
    axes = _axes(op, value)
    sign = -1 if attributes["forward"] else 1
    scale = _scale(attributes, [_size(op, value, axis) for axis in axes])
    real, imaginary = at.parts(value)
    for axis in axes:
        real, imaginary = _full(op, at, [real, imaginary], axis, sign, scale)
        scale = 1.0
    return [(real, imaginary)]


def to_reals(op: Any, at: Lowering) -> list[Any]:
    """``fft_c2r``, of one half of the frequencies. What is its own other half has no imaginary part."""
    attributes, value = op.attrs(), op.operand_source(0)
    *others, last = _axes(op, value)
    given = _size(op, value, last)
    size = attributes["last_dim_size"] or 2 * (given - 1)
    if size < 1 or given != size // 2 + 1:
        raise TraceError(f"{op.name()} of {given} frequencies to {size} numbers")
    sign = -1 if attributes["forward"] else 1
    scale = _scale(attributes, [*(_size(op, value, axis) for axis in others), size])
    real, imaginary = at.parts(value)
    for axis in others:
        real, imaginary = _full(op, at, [real, imaginary], axis, sign, 1.0)
    return _transformed(op, at, [real, imaginary], last, _Matrices(size, size, sign, scale, True, True))


FORMS = {"fft_r2c": from_reals, "fft_c2c": from_complex, "fft_c2r": to_reals}


def _axes(op: Any, value: Any) -> list[int]:
    return [int(axis) % len(value.shape) for axis in op.attrs()["axes"]]


def _size(op: Any, value: Any, axis: int) -> int:
    size = int(value.shape[axis])
    if size < 0:
        raise TraceError(f"{op.name().removeprefix('pd_op.')} along an axis that varies")
    return size


def _scale(attributes: dict[str, Any], sizes: Sequence[int]) -> float:
    """What the sums are multiplied by: by default, one over their length on the way back."""
    count, name, forward = math.prod(sizes), attributes["normalization"], attributes["forward"]
    if name == "ortho":
        return 1.0 / math.sqrt(count)
    return 1.0 / count if (name == "forward") == bool(forward) else 1.0


def _full(op: Any, at: Lowering, given: list[Any], axis: int, sign: int, scale: float) -> list[Any]:
    size = _size(op, given[0], axis)
    return _transformed(op, at, given, axis, _Matrices(size, size, sign, scale, True, False))


def _transformed(op: Any, at: Lowering, given: list[Any], axis: int, matrices: _Matrices) -> list[Any]:
    """The parts, or the one part, of the sums along an axis."""
    import paddle

    if matrices.elements > _ELEMENTS:
        name = op.name().removeprefix("pd_op.")
        raise TraceError(f"{name} of length {matrices.size}, whose factors are few", "Leave that part outside")
    rank, kept = len(given[0].shape), matrices.kept
    count = 1 if matrices.halved else 2
    if matrices.outer == 1 and axis == rank - 2:
        matrix = at.held(matrices.alone().T, given[0].dtype)
        sums = paddle.matmul(matrix, paddle.concat(given, axis) if len(given) > 1 else given[0])
        return [paddle.slice(sums, [axis], [kept * n], [kept * (n + 1)]) for n in range(count)]
    order = [each for each in range(rank) if each != axis] + [axis]
    moved = given if axis == rank - 1 else [paddle.transpose(part, order) for part in given]
    if matrices.outer == 1:
        matrix = at.held(matrices.alone(), given[0].dtype)
        sums = paddle.matmul(paddle.concat(moved, -1) if len(moved) > 1 else moved[0], matrix)
        made = [paddle.slice(sums, [rank - 1], [kept * n], [kept * (n + 1)]) for n in range(count)]
    else:
        made = _in_two_steps(at, moved, matrices)
    back = [order.index(each) for each in range(rank)]
    return made if axis == rank - 1 else [paddle.transpose(part, back) for part in made]


def _in_two_steps(at: Lowering, given: list[Any], matrices: _Matrices) -> list[Any]:
    """Of a length that is taken apart, along the last axis."""
    import paddle

    dtype, outer, inner, columns = given[0].dtype, matrices.outer, matrices.inner, matrices.columns
    before, count = lengths(given[0])[:-1], 1 if matrices.halved else 2
    if sum(not isinstance(size, int) for size in before) == 1:
        before = [size if isinstance(size, int) else -1 for size in before]
    if matrices.halved:
        places, signs = matrices.mirrored()
        given = [paddle.index_select(part, at.held(places, paddle.int64), -1) for part in given]
        given[1] = given[1] * at.held(signs, dtype)
    rows = [paddle.reshape(part, [-1, outer, inner]) for part in given]
    first = paddle.matmul(at.held(matrices.first(), dtype), paddle.concat(rows, 1) if len(rows) > 1 else rows[0])
    first = paddle.reshape(first, [-1, 2, outer, inner])
    if matrices.outer * matrices.elements <= _ELEMENTS:
        first = paddle.reshape(paddle.transpose(first, [2, 0, 1, 3]), [outer, -1, 2 * inner])
        second = paddle.matmul(first, at.held(matrices.second(), dtype))
        sums = paddle.transpose(paddle.reshape(second, [outer, -1, count, columns]), [1, 2, 3, 0])
    else:
        second = paddle.matmul(_rotated(at, first, matrices), at.held(matrices.inner_alone(), dtype))
        sums = paddle.transpose(paddle.reshape(second, [-1, outer, count, columns]), [0, 2, 3, 1])
    sums = paddle.reshape(sums, [-1, count, columns * outer])
    parts = [paddle.slice(sums, [1, 2], [n, 0], [n + 1, matrices.kept]) for n in range(count)]
    return [paddle.reshape(part, [*before, matrices.kept]) for part in parts]


def _rotated(at: Lowering, value: Any, matrices: _Matrices) -> Any:
    """Each element of the first transforms turned by itself, its two parts one behind the other along the last axis."""
    import paddle

    a, b = (paddle.slice(value, [1], [n], [n + 1]) for n in (0, 1))
    c, d = (at.held(part, value.dtype) for part in matrices.rotations())
    turned = paddle.concat([a * c - b * d, a * d + b * c], -1)
    return paddle.reshape(turned, [-1, matrices.outer, 2 * matrices.inner])


def _outer(size: int) -> int:
    """The larger of the factors that are no larger than the other one; 1 of a length that is not taken apart."""
    return 1 if size <= _ALONE else max(n for n in range(1, math.isqrt(size) + 1) if size % n == 0)


class _Matrices:
    """Those of a transform: its length, how many sums are kept, the sign of the exponents, the scale of the sums.

    ``paired``: of complex numbers, in place of real ones; ``halved``: of one half of the frequencies, to real numbers.
    Parts lie one behind the other, the real one first.
    """

    def __init__(self, size: int, kept: int, sign: int, scale: float, paired: bool, halved: bool) -> None:
        self.size, self.kept, self.sign, self.scale, self.paired, self.halved = size, kept, sign, scale, paired, halved
        self.outer = _outer(size)
        self.inner = size // self.outer
        self.columns = -(-kept // self.outer)  # of the second product, for each of the first one's
        given = (size + 2 if halved else 2 * size) if self.outer == 1 and paired else self.inner * min(self.outer, 2)
        self.elements = given * self.columns * (1 if halved else 2)  # of the largest matrix

    def first(self) -> Any:
        """Transforms of the elements that lie `inner` apart, of shape [2 * outer, outer], twice as wide of pairs."""
        import numpy

        places = numpy.arange(self.outer)
        roots = self._roots(numpy.outer(places, places) * self.inner)
        made = numpy.block([[roots.real, -roots.imag], [roots.imag, roots.real]])
        return made if self.paired else made[:, : self.outer]

    def rotations(self) -> tuple[Any, Any]:
        """Between the two transforms, of shape [outer, inner] each."""
        import numpy

        roots = self._roots(numpy.outer(numpy.arange(self.outer), numpy.arange(self.inner)))
        return roots.real, roots.imag

    def second(self) -> Any:
        """Rotations, and transforms of what the first ones gave, of shape [outer, 2 * inner, parts * columns]."""
        import numpy

        return self._inner(numpy.arange(self.outer))

    def inner_alone(self) -> Any:
        """Transforms of what has been turned, of shape [2 * inner, parts * columns]."""
        import numpy

        return self._inner(numpy.zeros(1, int))[0]

    def _inner(self, firsts: Any) -> Any:
        import numpy

        columns = numpy.arange(self.columns)[None, None] * self.outer + firsts[:, None, None]
        roots = self._roots(numpy.arange(self.inner)[None, :, None] * columns) * self.scale
        upper, lower = [roots.real, roots.imag], [-roots.imag, roots.real]
        count = 1 if self.halved else 2
        return numpy.concatenate([numpy.concatenate(rows[:count], 2) for rows in (upper, lower)], 1)

    def alone(self) -> Any:
        """The one matrix of a length that is not taken apart, of shape [parts * given, parts * kept]."""
        import numpy

        made = self.second()[0]
        if not self.halved:
            return made if self.paired else made[: self.size]
        places, signs = self.mirrored()
        folded = numpy.zeros((2, self.size // 2 + 1, self.kept))
        numpy.add.at(folded[0], places, made[: self.size])
        numpy.add.at(folded[1], places, made[self.size :] * signs[:, None])
        return folded.reshape(-1, self.kept)

    def mirrored(self) -> tuple[Any, Any]:
        """Where each frequency is found among one half of them, and the sign that its imaginary part has there."""
        import numpy

        places = numpy.arange(self.size)
        other: Any = self.size - places
        signs = numpy.where(places < other, 1.0, -1.0)
        signs[(places == 0) | (places == other)] = 0.0
        return numpy.where(places < other, places, other) % self.size, signs

    def _roots(self, turns: Any) -> Any:
        """Of unity. Turns are whole numbers, so that nothing is lost however many they are."""
        import numpy

        angles = (turns % self.size) * (2.0 * math.pi / self.size)
        return numpy.cos(angles) + 1j * self.sign * numpy.sin(angles)

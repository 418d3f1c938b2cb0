"""Complex numbers inside of a method are pairs of real ones in its graph, and come out as Paddle computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import eagerly, same  # noqa: E402
from paddle_support import right_when_captured as right  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle


def noise(*shape: int, seed: int = 0) -> Any:
    return paddle.to_tensor(np.random.default_rng([seed, *shape]).standard_normal(shape).astype("float32"))


def numbers(x: Any, y: Any) -> tuple[Any, Any]:
    return paddle.complex(x, y), paddle.complex(y, x) + 0.5


def arithmetic(x: Any, y: Any) -> list[Any]:
    a, b = numbers(x, y)
    return [
        a + b, a - b, a * b, a / b, a * 2.0, a / 2, a + 1, 1 + a, -a, a - x, x * a, a / x, x / b, a * 1j, a + (1 - 2j),
        a.conj(), paddle.exp(a), paddle.square(a), paddle.add_n([a, b]), paddle.scale(a, 2.0, 0.5, False),
        paddle.polar(x.abs(), y), paddle.complex(x, y[:, :1]),
        paddle.log(a), paddle.sqrt(a), a**2, a**3, a**0.5, paddle.pow(a, 2), paddle.pow(a, -1.5),
    ]  # fmt: skip


def products(x: Any, y: Any) -> list[Any]:
    a, b = numbers(x, y)
    return [
        paddle.matmul(a, b, transpose_y=True), a.transpose([0, 2, 1]) @ b, paddle.einsum("bij,bkj->bik", a, b),
        paddle.einsum("bij,kij->bk", a, b), paddle.einsum("bij->bji", a) + 1,
        paddle.matmul(a, paddle.ones([6, 2], "complex64") * (1 + 2j)), a @ x.transpose([0, 2, 1]),
    ]  # fmt: skip


def triangle_of(a: Any) -> Any:
    found = paddle.triu(a)
    found += a
    found[a.real() > 0] = 0
    return found


def shapes(x: Any, y: Any) -> list[Any]:
    a, b = numbers(x, y)
    return [
        a.reshape([0, -1]), a.flatten(1), a.transpose([2, 0, 1]), a.unsqueeze(1), a.unsqueeze(1).squeeze(1) + 1,
        a[:, 0], a[:, 1:3], a[..., -1], a[:, None], a[:, ::2], a[:, :, 1:2], paddle.concat([a, b], 1),
        paddle.stack([a, b], 1), *paddle.unbind(a, 1), a.expand([2, *a.shape]), a.tile([1, 2, 1]), a.flip([1]),
        paddle.roll(a, 1, 1), paddle.nn.functional.pad(a, [0, 2]), paddle.nn.functional.pad(a, [1, 0], value=2.5),
        paddle.gather(a, paddle.to_tensor([1, 0]), 1), paddle.index_select(a, paddle.to_tensor([1, 0]), 1),
        paddle.where(x > 0, a, b), paddle.tril(a), a[:, [1, 0]], a.cast("complex128"), paddle.diagonal(a, 0, 1, 2) + 1,
        paddle.gather_nd(a, paddle.to_tensor([[0, 1], [0, 2]])), paddle.moveaxis(a, 1, 2) + 1, triangle_of(a),
    ]  # fmt: skip


def reductions(x: Any, y: Any) -> list[Any]:
    a, _ = numbers(x, y)
    return [
        a.sum(), a.sum(1), a.sum([1, 2], keepdim=True), a.sum(-1, dtype="complex128"), a.mean(), a.mean(1),
        a.mean(-1, keepdim=True), paddle.cumsum(a, 1),
    ]  # fmt: skip


def constants(x: Any, y: Any) -> list[Any]:
    a, _ = numbers(x, y)
    sizes = [a.shape[0], 2]
    return [
        paddle.zeros_like(a) + a, paddle.ones_like(a) * a, paddle.full([6], 1 + 2j, "complex64") * a,
        paddle.ones([6], "complex64") * a, paddle.zeros(sizes, "complex64"), paddle.full(sizes, 2.5, "complex64"),
    ]  # fmt: skip


def numbers_of_python(x: Any, y: Any) -> list[Any]:
    a, b = numbers(x, y)
    whole = paddle.cast(x * 10, "int64")
    return [
        1j * x, x * 1j, x + (1 + 2j), x - 1j, 1j - x, x / 2j, 1j / b, whole * 1j, x.cast("float64") * 1j, (x > 0) * 1j,
        2 / b, 1 - a, 3.5 - a, a / 1j, paddle.exp(-1j * x), paddle.to_tensor([1j, 2]) * a[..., :2],
        a * paddle.to_tensor(0.5j), paddle.to_tensor(np.complex64([1, 2j, 3, 4, 5, 6j])) + a,
    ]  # fmt: skip


def parts(x: Any, y: Any) -> list[Any]:
    a, b = numbers(x, y)
    whole = paddle.as_complex(paddle.stack([x, y], -1))
    return [
        a.abs(), a.angle(), a.real() + 1, a.imag() + 1, paddle.as_real(a) * 1, whole.abs(), whole.cast("float32"),
        *(paddle.cast(answer, "int32") for answer in (a == whole, a != b, paddle.isnan(a), paddle.isfinite(a))),
        *(paddle.cast(paddle.cast(each, "bool"), "int32") for each in (a, a * 0, paddle.complex(x * 0, y))),
        a.numel() + 1, paddle.shape(a) + 1,
    ]  # fmt: skip


@pytest.mark.parametrize("form", [arithmetic, products, shapes, reductions, constants, numbers_of_python, parts])
def test_forms(form: Callable[..., Any]) -> None:
    calls = [(noise(rows, 4, 6), noise(rows, 4, 6, seed=1)) for rows in (1, 3, 2)]
    right(form, *calls, captures=2)


def test_far_from_one() -> None:
    """No size or quotient becomes infinite, or nothing, on the way."""
    x = paddle.to_tensor([3e25, 3e-25, 0.0, -4.0, 1e38], "float32")
    y = paddle.to_tensor([4e25, 4e-25, 0.0, 0.0, -1e38], "float32")

    def method(x: Any, y: Any) -> Any:
        a = paddle.complex(x, y)
        b = paddle.complex(y, x * 2)
        return a.abs(), a.angle(), paddle.as_real(a / paddle.where(a.abs() > 0, b, paddle.ones_like(b)))

    mine = inference(method, verify="off", fallback="error")
    with paddle.no_grad():
        for found, expected in zip(mine(x, y), method(x, y), strict=True):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)


def test_what_is_infinite_or_no_number() -> None:
    numbers = [0.0, 1.0, -2.0, np.inf, -np.inf, np.nan]
    x, y = (paddle.to_tensor(np.float32(each)) for each in np.meshgrid(numbers, numbers))

    def method(x: Any, y: Any) -> Any:
        a = paddle.complex(x, y)
        b = paddle.complex(y, paddle.ones_like(x))
        both = paddle.isinf(a) & paddle.isnan(a)  # of which the size is none here, and infinite in eager mode
        answers = paddle.isinf(a), paddle.isnan(a), a == a
        return paddle.as_real(a * b), paddle.where(both, x, a.abs()), a.angle(), *answers

    right(method, (x, y), captures=1)


def test_elements_are_written() -> None:
    """The modes that a Fourier neural operator keeps."""

    def method(x: Any) -> Any:
        spectrum = paddle.fft.rfft2(x, axes=(1, 2))
        kept = paddle.zeros([x.shape[0], 8, 4], "complex64")
        kept[:, :2, :3] = spectrum[:, :2, :3] * (2 + 1j)
        kept[:, -2:, :3] = spectrum[:, -2:, :3]
        return paddle.fft.irfft2(kept, s=[8, 6], axes=(1, 2))

    right(method, *((noise(rows, 8, 6),) for rows in (1, 3, 2)), captures=2)


def test_numbers_are_written() -> None:
    def method(x: Any) -> Any:
        spectrum = paddle.fft.rfft(x)
        spectrum[:, 2:] = 0
        spectrum[:, 0] = 1.5 - 2j
        spectrum[:, 1:2] = spectrum[:, 1:2] * 1j
        return paddle.as_real(spectrum), paddle.fft.irfft(spectrum, n=8)

    right(method, *((noise(rows, 8),) for rows in (1, 3, 2)), captures=2)


def test_in_a_branch() -> None:
    def method(x: Any) -> Any:
        spectrum = paddle.fft.rfft(x)
        found = spectrum.real() + 1
        if x.sum() > 0:
            found = (spectrum * 2).abs()
        return found

    right(method, (noise(2, 8).abs(),), (-noise(2, 8).abs(),), captures=1)


def test_out_of_a_branch_they_run_eagerly() -> None:
    def method(x: Any) -> Any:
        spectrum = paddle.fft.rfft(x)
        if x.sum() > 0:
            spectrum = spectrum * 2
        return spectrum.abs()

    mine = inference(method)
    with paddle.no_grad():
        for x in (noise(2, 8).abs(), -noise(2, 8).abs()):
            same(mine(x), method(x))
    eagerly("a branch or loop gives complex numbers")

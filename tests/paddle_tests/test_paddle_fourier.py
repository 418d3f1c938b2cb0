"""Fourier transforms are served, and as close to the sums that they stand for as Paddle's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import eagerly, right_when_captured, same, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
fft = paddle.fft


def noise(*shape: int, dtype: str = "float32") -> Any:
    return paddle.to_tensor(np.random.default_rng(shape).standard_normal(shape).astype(dtype))


def parts(*spectra: Any) -> list[Any]:
    return [paddle.as_real(each) for each in spectra]


def right(method: Callable[..., Any], *calls: Any, captures: int = 1, tolerance: float = 2e-5) -> None:
    """A second capture leaves the sizes open that are others than at the first call."""
    right_when_captured(method, *((x,) for x in calls), captures=captures, tolerance=tolerance)


@pytest.mark.parametrize("width", [7, 8])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transforms_of_each_norm(norm: str, width: int) -> None:
    def method(x: Any) -> Any:
        full = fft.fft(x, axis=1) * (1.5 - 0.5j)
        return [
            *parts(fft.rfft(x, norm=norm), fft.fft(x, norm=norm), fft.ihfft(x, norm=norm), fft.ifft(full, norm=norm)),
            *parts(fft.rfft2(x, norm=norm), fft.fft2(x, norm=norm), fft.ifft2(full, norm=norm)),
            *parts(fft.fftn(x, axes=(1, 2), norm=norm), fft.rfftn(x, axes=(2, 1), norm=norm)),
            *parts(fft.ifftn(full, axes=(1, 2), norm=norm), fft.ihfft2(x, norm=norm)),
            fft.irfft(full, norm=norm), fft.irfft(full, n=9, norm=norm), fft.irfft(full, n=20, norm=norm),
            fft.irfft2(full, norm=norm), fft.irfftn(full, axes=(1, 2), norm=norm), fft.hfft(full, norm=norm),
            fft.irfft2(full, s=[5, 11], axes=(1, 2), norm=norm), fft.hfft2(full, norm=norm),
        ]  # fmt: skip

    right(method, *(noise(rows, 6, width) for rows in (1, 3, 2)), captures=2, tolerance=1e-4)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_axes_and_lengths(axis: int) -> None:
    def method(x: Any) -> Any:
        return parts(*(transform(x, n, axis) for transform in (fft.rfft, fft.fft) for n in (None, 3, 20, 100)))

    right(method, noise(5, 6, 8), noise(5, 6, 8))


#: Those of one product, of two, primes, and long ones, whose rotations are apart.
LENGTHS = [1, 2, 63, 64, 65, 100, 127, 400, 512, 513, 1000, 1021, 2048, 4096, 16000]


@pytest.mark.parametrize("size", LENGTHS)
def test_lengths(size: int) -> None:
    def method(x: Any) -> Any:
        half = fft.rfft(x)
        return [paddle.as_real(half), fft.irfft(half * (1 + 2j), n=size), fft.rfft(x, axis=0).abs()]

    right(method, noise(1, size), noise(3, size), captures=2, tolerance=1e-4)


@pytest.mark.parametrize("size", [size for size in LENGTHS if size != 1021])
def test_lengths_of_complex_numbers(size: int) -> None:
    def method(x: Any) -> Any:
        full = fft.fft(x) * (1 + 0.5j)
        return parts(full, fft.ifft(full), fft.fft(full, norm="ortho"))

    right(method, noise(3, size), tolerance=1e-3)


@pytest.mark.parametrize("size", [16, 64, 400, 512, 1000, 1024, 2048, 16384])
def test_accuracy(size: int) -> None:
    """Of single precision against double: no more than about twice as far off as Paddle's own."""
    x = noise(64, size)

    def there(x: Any) -> Any:
        return paddle.as_real(fft.rfft(x))

    def back(x: Any) -> Any:
        return fft.irfft(paddle.as_complex(x), n=size)

    for method, given in ((there, x), (back, there(x))):
        truth = method(given.astype("float64")).numpy()
        mine = inference(method, verify="off", fallback="error")
        with paddle.no_grad():
            off, eager = (np.sqrt(np.mean((f(given).numpy() - truth) ** 2)) for f in (mine, method))
        assert off < (2.2 if size <= 4096 else 3) * eager, (size, off, eager)


def test_double_precision() -> None:
    right(
        lambda x: [*parts(fft.rfft(x), fft.fft(x, axis=1)), fft.irfft(fft.rfft(x), n=200)],
        noise(3, 200, 8, dtype="float64"), tolerance=1e-11,
    )  # fmt: skip


def test_what_is_its_own_other_half_has_no_imaginary_part() -> None:
    """Paddle ignores it, in the first of the frequencies and in the last of an even number."""
    given = noise(3, 40, 2)

    def method(x: Any) -> Any:
        half = paddle.as_complex(x)
        return [fft.irfft(half), fft.irfft(half, n=79), fft.irfft2(half, s=[3, 8]), fft.hfft(half)]

    right(method, given, tolerance=1e-5)


def test_no_numbers_of_a_single_frequency_are_told_of() -> None:
    method = inference(lambda x: fft.irfft(paddle.as_complex(x)), verify="off")
    with paddle.no_grad():
        assert method(noise(3, 1, 2)).shape == [3, 0]
    eagerly("fft_c2r of 1 frequencies to 0 numbers")


def test_frequencies_and_shifts() -> None:
    def method(x: Any) -> Any:
        full = fft.fft2(x)
        return [
            fft.fftshift(x), fft.ifftshift(full).real(), fft.fftshift(full, axes=[1, 2]).imag(),
            x[0, 0, 0] * fft.fftfreq(9, 0.5), x[0, 0, 0] * fft.rfftfreq(8, 0.1),
        ]  # fmt: skip

    right(method, noise(1, 5, 8), noise(4, 5, 8), noise(3, 5, 8), captures=2)


def test_spectra_are_arguments_weights_and_results() -> None:
    class Filter(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("gain", paddle.complex(noise(9), noise(9) * 2))

        def forward(self, spectrum: Any) -> Any:
            return spectrum * self.gain, spectrum.mean(-1)

    layer = Filter()
    mine = inference(Filter.forward, verify="off", fallback="error")
    with paddle.no_grad():
        for rows in (1, 3, 2):
            spectrum = fft.rfft(noise(rows, 16))
            same(mine(layer, spectrum), layer.forward(spectrum))
        layer.gain = layer.gain * 2
        same(mine(layer, spectrum), layer.forward(spectrum))
    served(captures=2)


def test_a_length_that_varies_is_captured_for_each() -> None:
    right(lambda x: fft.rfft(x).abs(), noise(2, 16), noise(3, 16), noise(3, 18), noise(5, 18), captures=3)


def test_a_long_length_of_few_factors_runs_eagerly() -> None:
    mine = inference(lambda x: fft.rfft(x).abs())
    with paddle.no_grad():
        mine(noise(1, 2 * 4099))
    eagerly("fft_r2c of length 8198", "factors")


def test_what_has_no_form_runs_eagerly() -> None:
    mine = inference(lambda x: paddle.tanh(fft.rfft(x)).real())
    with paddle.no_grad():
        mine(noise(1, 8))
    eagerly("tanh of complex numbers", "test_paddle_fourier.py")


@pytest.mark.parametrize("size", [8, 9, 130, 256])
def test_the_ends_of_a_real_spectrum_have_no_imaginary_part(size: int) -> None:
    """Else their angle is pi by one sign and -pi by the other, at later calls alone."""
    hot = inference(backend="onnxruntime")(lambda x: (paddle.fft.rfft(x).imag(), paddle.fft.fft(x).imag()))
    with paddle.no_grad():
        for sign in (3.0, -3.0):
            x = paddle.sin(paddle.arange(size, dtype="float32")) + sign * paddle.cos(math.pi * paddle.arange(size))
            for found in hot(x.astype("float32").unsqueeze(0)):
                ends = [0, size // 2] if size % 2 == 0 else [0]
                assert all(str(float(found[0, place])) == "0.0" for place in ends)

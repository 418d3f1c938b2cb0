"""Spectra of signals, and models that are made of them: features of audio, vocoders, Fourier neural operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import same, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
features, nn, signal = paddle.audio.features, paddle.nn, paddle.signal


def noise(*shape: int) -> Any:
    return paddle.to_tensor(np.random.default_rng(shape).standard_normal(shape).astype("float32") * 0.1)


def right(layer: Any, *calls: Any, captures: int = 2, tolerance: float = 1e-4) -> None:
    layer.eval()
    mine = inference(type(layer).forward, verify="off", fallback="error")
    with paddle.no_grad():
        for x in calls:
            same(mine(layer, x), layer(x), tolerance)
    served(captures=captures)


class Around(nn.Layer):
    """A layer of the framework's inside of one's own."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)


FEATURES: dict[str, Callable[[], Any]] = {
    "spectrogram": lambda: features.Spectrogram(n_fft=256, hop_length=64, win_length=200),
    "magnitudes": lambda: features.Spectrogram(n_fft=300, power=1.0, center=False),
    "mel": lambda: features.MelSpectrogram(sr=8000, n_fft=256, hop_length=80, n_mels=20),
    "log_mel": lambda: features.LogMelSpectrogram(sr=8000, n_fft=256, hop_length=80, n_mels=20),
    "loudest": lambda: features.LogMelSpectrogram(sr=8000, n_fft=256, hop_length=80, n_mels=20, top_db=40.0),
    "mfcc": lambda: features.MFCC(sr=8000, n_fft=256, hop_length=80, n_mels=20, n_mfcc=10),
}


@pytest.mark.parametrize("name", FEATURES)
def test_features_of_audio(name: str) -> None:
    layer = Around(FEATURES[name]())
    right(layer, noise(1, 3000), noise(3, 4000), noise(2, 2001), noise(1, 3000))


class Spectra(nn.Layer):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.register_buffer("window", paddle.audio.functional.get_window("hann", 64, dtype="float32"))
        self.settings = settings

    def forward(self, x: Any) -> Any:
        return paddle.as_real(signal.stft(x, 64, 16, window=self.window, **self.settings))


@pytest.mark.parametrize("settings", [
    {}, {"center": False}, {"normalized": True}, {"onesided": False}, {"pad_mode": "constant"},
])  # fmt: skip
def test_short_time_transforms(settings: dict[str, Any]) -> None:
    right(Spectra(**settings), noise(1, 500), noise(3, 500), noise(2, 500))


class Again(Spectra):
    """A signal from its spectrum."""

    size, step, given = 64, 16, {"normalized": False}

    def forward(self, x: Any) -> Any:
        both = {key: value for key, value in self.settings.items() if key != "length"}
        spectrum = signal.stft(x, self.size, self.step, 64, window=self.window, **both)
        found = signal.istft(spectrum * 2, self.size, self.step, 64, window=self.window, **self.settings)
        return found


@pytest.mark.parametrize("sizes", [(64, 16), (64, 24), (80, 20), (64, 64)])
@pytest.mark.parametrize("settings", [{}, {"normalized": True}, {"onesided": False}, {"length": 470}])
def test_signals_from_spectra(settings: dict[str, Any], sizes: tuple[int, int]) -> None:
    layer = Again(**settings)
    if sizes == (64, 64):  # which do not overlap
        layer.window = paddle.ones([64])
    layer.size, layer.step = sizes
    right(layer, noise(1, 500), noise(3, 700), noise(2, 610), noise(1, 500))


class Vocoder(nn.Layer):
    """The head of Vocos (H. Siuzdak, 2023): sizes and angles of a spectrum, and the signal that has it."""

    def __init__(self, width: int = 12, size: int = 64) -> None:
        super().__init__()
        self.out = nn.Linear(width, size + 2)
        self.size = size
        self.register_buffer("window", paddle.audio.functional.get_window("hann", size, dtype="float32"))

    def forward(self, x: Any) -> Any:
        sizes, angles = paddle.split(self.out(x).transpose([0, 2, 1]), 2, axis=1)
        sizes = paddle.clip(paddle.exp(sizes), max=1e2)
        spectrum = sizes * (paddle.cos(angles) + 1j * paddle.sin(angles))
        return signal.istft(spectrum, self.size, self.size // 4, self.size, window=self.window)


class Generator(nn.Layer):
    """The end of iSTFTNet (T. Kaneko et al., 2022), in HiFiGAN's place."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Conv1D(8, 18, 7, padding=3)

    def forward(self, x: Any) -> Any:
        found = self.out(nn.functional.leaky_relu(x, 0.1))
        sizes, angles = paddle.exp(found[:, :9]), paddle.sin(found[:, 9:])
        spectrum = sizes * paddle.exp(1j * angles)
        return signal.istft(spectrum, 16, 4, 16, window=paddle.ones([16])).unsqueeze(1)


class Losses(nn.Layer):
    """Of R. Yamamoto et al., Parallel WaveGAN, 2020: how far two spectra are apart, at several resolutions."""

    def forward(self, x: Any) -> Any:
        total = 0.0
        for size, step in ((128, 30), (64, 16)):
            mine, other = (signal.stft(each, size, step, window=None).abs() + 1e-7 for each in (x, x.flip([1])))
            total += paddle.norm(other - mine, p="fro") / paddle.norm(other, p="fro")
            total += (paddle.log(other) - paddle.log(mine)).abs().mean()
        return total


class Mixing(nn.Layer):
    """FNet's (J. Lee-Thorp et al., 2021), along tokens and along their features."""

    def forward(self, x: Any) -> Any:
        return paddle.fft.fft(paddle.fft.fft(x, axis=-1), axis=-2).real() + paddle.fft.fftn(x, axes=(1, 2)).real()


class Operator(nn.Layer):
    """A layer of a Fourier neural operator (Z. Li et al., 2020)."""

    def __init__(self, width: int = 4, modes: int = 3) -> None:
        super().__init__()
        self.modes = modes
        random = np.random.default_rng(0).standard_normal((2, 2, width, width, modes, modes)).astype("float32")
        for name, (real, imaginary) in zip(("low", "high"), random, strict=True):
            self.register_buffer(name, paddle.complex(paddle.to_tensor(real), paddle.to_tensor(imaginary)))
        self.skip = nn.Conv2D(width, width, 1)

    def forward(self, x: Any) -> Any:
        n, (rows, columns) = self.modes, x.shape[-2:]
        spectrum = paddle.fft.rfft2(x)
        kept = paddle.zeros([*x.shape[:-1], columns // 2 + 1], "complex64")
        kept[:, :, :n, :n] = paddle.einsum("bixy,ioxy->boxy", spectrum[:, :, :n, :n], self.low)
        kept[:, :, -n:, :n] = paddle.einsum("bixy,ioxy->boxy", spectrum[:, :, -n:, :n], self.high)
        return nn.functional.gelu(paddle.fft.irfft2(kept, s=(rows, columns)) + self.skip(x))


class Adaptive(nn.Layer):
    """The mixing of AFNO (J. Guibas et al., 2021): a perceptron for each block of channels, of complex numbers."""

    def __init__(self, width: int = 8, blocks: int = 2) -> None:
        super().__init__()
        self.blocks, self.size = blocks, width // blocks
        self.w1 = self.create_parameter([2, blocks, self.size, self.size])
        self.w2 = self.create_parameter([2, blocks, self.size, self.size])

    def layer(self, real: Any, imaginary: Any, w: Any) -> Any:
        def product(x: Any, y: Any) -> Any:
            return paddle.einsum("...bd,bdk->...bk", x, y)

        return product(real, w[0]) - product(imaginary, w[1]), product(imaginary, w[0]) + product(real, w[1])

    def forward(self, x: Any) -> Any:
        batch, rows, columns, width = x.shape
        z = paddle.fft.rfft2(x, axes=(1, 2), norm="ortho")
        z = z.reshape([batch, rows, columns // 2 + 1, self.blocks, self.size])
        real, imaginary = self.layer(z.real(), z.imag(), self.w1)
        real, imaginary = self.layer(nn.functional.relu(real), nn.functional.relu(imaginary), self.w2)
        mixed = nn.functional.softshrink(paddle.stack([real, imaginary], axis=-1), 0.01)
        mixed = paddle.as_complex(mixed).reshape([batch, rows, columns // 2 + 1, width])
        return paddle.fft.irfft2(mixed, s=(rows, columns), axes=(1, 2), norm="ortho") + x


class Turning(nn.Layer):
    """Rotary positions as complex numbers, as in Llama's own code."""

    def forward(self, x: Any) -> Any:
        length, width = x.shape[1:]
        places, pairs = (paddle.arange(size, dtype="float32") for size in (length, width // 2))
        steps = paddle.outer(places, 10.0**-pairs)
        turns = paddle.polar(paddle.ones_like(steps), steps)
        pairs = paddle.as_complex(x.reshape([0, 0, -1, 2]))
        return paddle.as_real(pairs * turns).flatten(2) / math.sqrt(2.0)


MODELS: dict[str, tuple[Callable[[], Any], list[tuple[int, ...]], int]] = {
    "vocoder": (Vocoder, [(1, 20, 12), (3, 33, 12), (2, 8, 12)], 2),
    "generator": (Generator, [(1, 8, 20), (3, 8, 33), (2, 8, 9)], 2),
    "losses": (Losses, [(1, 500), (3, 700), (2, 610)], 2),
    "mixing": (Mixing, [(1, 16, 8), (3, 16, 8), (2, 16, 8), (2, 12, 8)], 3),
    "operator": (Operator, [(1, 4, 8, 10), (3, 4, 8, 10), (2, 4, 8, 10)], 2),
    "adaptive": (Adaptive, [(1, 6, 8, 8), (3, 6, 8, 8), (2, 6, 8, 8)], 2),
    "turning": (Turning, [(1, 5, 8), (3, 9, 8), (2, 4, 8)], 2),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    paddle.seed(0)
    make, shapes, captures = MODELS[name]
    right(make(), *(noise(*shape) for shape in shapes), captures=captures)

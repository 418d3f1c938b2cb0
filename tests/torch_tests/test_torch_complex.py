"""Complex numbers: methods that make, keep, take and return them are served, and answer as eager does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_support import counts, same, served

from hybrid_infer import InputSpec, inference, load, save

F = torch.nn.functional
WINDOW = torch.hann_window(16)
POSITIONS = torch.polar(torch.ones(4, 3), torch.arange(12.0).reshape(4, 3))


def z(x: torch.Tensor) -> torch.Tensor:
    return torch.complex(x, x.flip(-1) * 0.5)


def rotated(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Rotary embedding in its complex form."""
    return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * by).flatten(-2)


def spectrum(x: torch.Tensor) -> torch.Tensor:
    return torch.stft(x.flatten(1), 16, 4, 16, WINDOW, return_complex=True)


def cut(x: torch.Tensor) -> torch.Tensor:
    """The lower modes of a spectrum, as in a Fourier neural operator."""
    kept = torch.zeros(x.shape[0], 4, 4, dtype=torch.cfloat)
    kept[:, :, :2] = torch.fft.rfft(x)[:, :, :2] * 2j
    return torch.fft.irfft(kept, n=6)


METHODS: dict[str, Callable[[torch.Tensor], Any]] = {
    "add a real": lambda x: (z(x) + x) - 1,
    "bmm": lambda x: torch.bmm(z(x), z(x).mT) + torch.mm(z(x)[0], z(x)[1].T),
    "chunk": lambda x: z(x).chunk(2, 1)[1],
    "complex128": lambda x: z(x.double()) * POSITIONS.to(torch.complex128)[:, :1],
    "conj": lambda x: z(x).conj() * 2,
    "copy": cut,
    "cumsum": lambda x: z(x).cumsum(-2),
    "detach": lambda x: z(x).detach() * 2,
    "diagonal": lambda x: z(x).diagonal(dim1=1, dim2=-1) * 2,
    "divide": lambda x: z(x) / (x.abs() + 1) / (2 - 1j),
    "einsum": lambda x: torch.einsum("bij,bkj->bik", z(x), z(x)),
    "einsum of one": lambda x: torch.einsum("bij->ji", z(x)),
    "exp": lambda x: x.abs() * torch.exp(1j * x),
    "exp of a real": lambda x: torch.exp(x.to(torch.complex64)),
    "expand": lambda x: z(x[:, :1]).expand(-1, 4, -1) * 2,
    "fft2": lambda x: torch.fft.ifft2(torch.fft.fft2(x) * 2).real,
    "full": lambda x: torch.full((4, 6), 2 - 1j) * z(x) + torch.ones_like(z(x)) - torch.full_like(z(x), 3),
    "gather": lambda x: z(x).gather(1, torch.tensor([0, 2, 1]).view(1, 3, 1).expand(2, 3, 6)),
    "index": lambda x: z(x)[:, torch.tensor([0, 2])],
    "index_put": lambda x: z(x).index_put((torch.tensor([1, 0]),), z(x) * 2),
    "index_select": lambda x: z(x).index_select(-1, torch.tensor([5, 0])),
    "istft": lambda x: torch.istft(spectrum(x), 16, 4, 16, WINDOW),
    "istft of another hop": lambda x: torch.istft(torch.stft(x.flatten(1), 16, 5, 16, WINDOW, return_complex=True), 16, 5, 16, WINDOW),  # noqa: E501
    "istft of a length": lambda x: torch.istft(spectrum(x), 16, 4, 16, WINDOW, length=20),
    "matmul": lambda x: z(x) @ z(x).mT,
    "multiply by a number": lambda x: x * 2j,
    "pad": lambda x: F.pad(z(x), (1, 2)),
    "pad with a number": lambda x: F.pad(z(x), (0, 1, 2, 0), value=3.0),
    "pad by reflecting": lambda x: F.pad(z(x), (2, 1), "reflect"),
    "parts": lambda x: z(x).real * z(x).imag + z(x).angle() + z(x).abs(),
    "reciprocal": lambda x: z(x).reciprocal() + 2 / z(x),
    "repeat": lambda x: z(x).repeat(2, 1, 1),
    "rotated": lambda x: rotated(x, POSITIONS),
    "rotated by some": lambda x: rotated(x, POSITIONS[torch.tensor([3, 1, 0, 2])]),
    "rotated by parts": lambda x: rotated(x, torch.cat(POSITIONS.split([1, 2], 1)[::-1], 1)),
    "select": lambda x: z(x)[:, -1],
    "split": lambda x: torch.cat(z(x).split([1, 2, 3], -1)[::-1], -1),
    "squeeze": lambda x: z(x[:, :1]).squeeze() * z(x[:, :1]).squeeze(1),
    "to bool": lambda x: torch.complex(x.relu(), x).bool(),
    "to complex": lambda x: x.to(torch.complex64),
    "to complex128": lambda x: z(x).to(torch.complex128),
    "to real": lambda x: z(x).to(torch.float32),
    "unbind": lambda x: z(x).unbind(1)[2],
    "unsqueeze": lambda x: z(x).unsqueeze(-1) * z(x).unsqueeze(-2),
    "where": lambda x: torch.where(x > 0, z(x), x),
}


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("name", METHODS)
def test_operators(name: str) -> None:
    method = METHODS[name]
    hot = inference(method, backend="onnxruntime")
    torch.manual_seed(0)
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(2, 4, 6)
            same(hot(x), method(x))
    served(captures=1)


ODD = [
    "add a real", "conj", "divide", "exp of a real", "multiply by a number", "parts", "reciprocal", "rotated",
    "to complex", "where",
]  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_numbers_that_are_not_finite_or_far(name: str) -> None:
    method = METHODS[name]
    hot = inference(method, backend="onnxruntime")
    torch.manual_seed(0)
    with torch.no_grad():
        for value in (0.0, 1e25, 1e-25, float("inf"), float("-inf"), float("nan")):
            x = torch.randn(2, 4, 6)
            x[1, 2, 3] = value
            same(torch.view_as_real(torch.as_tensor(hot(x) + 0j)), torch.view_as_real(method(x) + 0j))
    served(captures=1)


class Attention(torch.nn.Module):
    """As in language models that keep the positions of all tokens as complex numbers, and a cache."""

    def __init__(self, dtype: torch.dtype = torch.complex64) -> None:
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)
        angles = torch.outer(torch.arange(32.0), torch.tensor([1.0, 0.1, 0.01, 0.001]))
        self.register_buffer("freqs_cis", torch.polar(torch.ones_like(angles), angles).to(dtype))

    def forward(self, x: torch.Tensor, start: int = 0, freqs: torch.Tensor | None = None) -> torch.Tensor:
        if freqs is None:
            freqs = self.freqs_cis[start : start + x.shape[1]]
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 8).unbind(2)
        wide = freqs.real.dtype
        q, k = (rotated(each.to(wide), freqs.unsqueeze(1)).type_as(x) for each in (q, k))
        found = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        out: torch.Tensor = self.out(found.transpose(1, 2).flatten(2))
        return out


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=["complex64", "complex128"])
@pytest.mark.parametrize("passed", [False, True], ids=["kept", "passed"])
def test_a_block_with_complex_positions(passed: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = Attention(dtype).eval()
    plain = copy.deepcopy(layer)
    hot = inference(layer, backend="onnxruntime")
    with torch.no_grad():
        for start, length in ((0, 5), (5, 7), (3, 9), (0, 11)):
            x = torch.randn(2, length, 16)
            freqs = (plain.freqs_cis[start : start + length],) if passed else ()
            same(hot(x, start, *freqs), plain(x, start, *freqs))
    assert counts()["eager_calls"] == 0 and counts()["captures"] <= 3


def test_complex_weights_that_change() -> None:
    layer = torch.nn.Module()
    layer.weight = torch.nn.Parameter(torch.randn(4, dtype=torch.cfloat))
    hot = inference(lambda x: x * layer.weight, backend="onnxruntime")
    x = torch.randn(3, 4)
    with torch.no_grad():
        for _ in range(6):  # after a few changes they are handed over at each call
            same(hot(x), x * layer.weight)
            layer.weight += 1j
    served(captures=1)


def test_arguments_and_results() -> None:
    method = lambda a, b: ((a * b).conj(), a.real * 2, [b])  # noqa: E731
    hot = inference(method, backend="onnxruntime")
    with torch.no_grad():
        for dtype in (torch.cfloat, torch.cdouble):
            a, b = torch.randn(3, 4, dtype=dtype), torch.randn(4, 3, dtype=dtype).T
            for given in ((a, b), (a.conj(), b), (a, b[:, ::2].repeat(1, 2))):
                same(hot(*given), method(*given))
    served(captures=2)


def test_gradients_come_of_the_eager_method() -> None:
    layer = Attention()
    hot = inference(copy.deepcopy(layer), backend="onnxruntime")
    for each in (layer, hot):
        torch.manual_seed(1)
        each(torch.randn(1, 5, 16)).sum().backward()
    same(hot.qkv.weight.grad, layer.qkv.weight.grad)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_saved_model(tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if engine == "openvino":
        pytest.importorskip("openvino")
    monkeypatch.setenv("HYBRID_INFER_BACKEND", engine)
    layer = Attention().eval()
    x, freqs = torch.randn(2, 7, 16), layer.freqs_cis[:7]
    with torch.no_grad():
        save(layer, str(tmp_path / "kept"), input_spec=[InputSpec([-1, -1, 16], "float32")])
        same(load(str(tmp_path / "kept"))(x), layer(x), 1e-4)
    whole = inference(lambda a, b: a * b)
    save(whole, str(tmp_path / "taken"), input_spec=[InputSpec([-1, 4], "complex64")] * 2)
    found = load(str(tmp_path / "taken"))(freqs, freqs)
    same(found, freqs * freqs)
    written = load(str(tmp_path / "kept"))
    written.export_onnx(str(tmp_path / "kept.onnx"))
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(tmp_path / "kept.onnx"), providers=["CPUExecutionProvider"])
    (out,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(out, layer(x).detach().numpy(), atol=1e-4)


def test_what_no_file_can_hold(tmp_path: Path) -> None:
    from hybrid_infer import StaticModelError

    with pytest.raises(StaticModelError, match="freqs_cis is of the element type complex128"):
        save(Attention(torch.complex128), str(tmp_path / "model"), input_spec=[InputSpec([-1, -1, 16], "float32")])

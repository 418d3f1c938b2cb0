"""What a method may ask of a tensor or of torch, beside types and sizes, is answered as eagerly on each side."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch_support import Block, counts, eagerly, same

from hybrid_infer import inference

X = torch.linspace(-1, 1, 16).reshape(4, 4)


class Asking(Block):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(16.0).reshape(4, 4))


def _weight(change: Callable[[Asking], object]) -> Callable[[Asking], torch.Tensor]:
    def apply(layer: Asking) -> torch.Tensor:
        change(layer)
        return X.clone()

    return apply


def _setting(function: Callable[..., Any], *values: Any) -> list[Callable[[Asking], torch.Tensor]]:
    return [_weight(lambda layer, value=value: function(value)) for value in values]


def _transposed(layer: Asking) -> None:
    layer.weight.data = layer.weight.data.t().contiguous().t()


def _straight(layer: Asking) -> None:
    layer.weight.data = layer.weight.data.contiguous()


def _offset(_: Asking) -> torch.Tensor:
    return torch.linspace(-1, 1, 17)[1:].reshape(4, 4)


def plain(_: Asking) -> torch.Tensor:
    return X.clone()


def transposed(_: Asking) -> torch.Tensor:
    return X.t()


def differentiable(_: Asking) -> torch.Tensor:
    return X.clone().requires_grad_()


def computed(_: Asking) -> torch.Tensor:
    with torch.enable_grad():
        return X.clone().requires_grad_() * 1


def frozen(_: Asking) -> torch.Tensor:
    with torch.inference_mode():
        return X + 0


def parameter(_: Asking) -> torch.Tensor:
    return torch.nn.Parameter(X.clone())


Question = Callable[[Asking, torch.Tensor], Any]
CASES: dict[str, tuple[Question, list[Callable[[Asking], torch.Tensor]]]] = {
    "requires_grad": (lambda s, x: x.requires_grad, [plain, differentiable]),
    "requires_grad of a weight": (
        lambda s, x: s.weight.requires_grad,
        [_weight(lambda s: s.weight.requires_grad_(True)), _weight(lambda s: s.weight.requires_grad_(False))],
    ),
    "is_leaf": (lambda s, x: x.is_leaf, [plain, computed]),
    "grad_fn": (lambda s, x: x.grad_fn is None, [plain, computed]),
    "is_inference": (lambda s, x: x.is_inference(), [plain, frozen]),
    "class": (lambda s, x: isinstance(x, torch.nn.Parameter), [plain, parameter]),
    "stride": (lambda s, x: x.stride(0) == 4, [plain, transposed]),
    "is_contiguous": (lambda s, x: x.is_contiguous(), [plain, transposed]),
    "stride of a weight": (lambda s, x: s.weight.stride() == (4, 1), [_weight(_straight), _weight(_transposed)]),
    "is_contiguous of a weight": (lambda s, x: s.weight.is_contiguous(), [_weight(_straight), _weight(_transposed)]),
    "storage_offset": (lambda s, x: x.storage_offset() == 0, [plain, _offset]),
    "data_ptr": (lambda s, x: x.data_ptr() % 64 == 0, [plain, _offset]),
    "as_strided": (lambda s, x: x.as_strided((4, 4), (4, 1))[0, 1] < 0, [plain, transposed]),
    "device": (lambda s, x: x.device.type == "cpu", [plain, transposed]),
    "layout": (lambda s, x: x.layout is torch.strided, [plain, transposed]),
    "dtype": (lambda s, x: x.dtype is torch.float64, [plain, lambda layer: X.double()]),
    "dtype of a weight": (
        lambda s, x: s.weight.dtype is torch.float64,
        [plain, _weight(lambda layer: setattr(layer, "weight", torch.nn.Parameter(layer.weight.double())))],
    ),
    "threads": (lambda s, x: torch.get_num_threads() == 1, _setting(torch.set_num_threads, 1, 2)),
    "float32 precision": (
        lambda s, x: torch.get_float32_matmul_precision() == "high",
        _setting(torch.set_float32_matmul_precision, "highest", "high"),
    ),
    "deterministic algorithms": (
        lambda s, x: torch.are_deterministic_algorithms_enabled(),
        _setting(torch.use_deterministic_algorithms, True, False),
    ),
    "default element type": (
        lambda s, x: torch.get_default_dtype() is torch.float64,
        _setting(torch.set_default_dtype, torch.float64, torch.float32),
    ),
    "inference mode": (lambda s, x: torch.is_inference_mode_enabled(), [plain, plain]),
    "autocast": (lambda s, x: torch.is_autocast_enabled("cpu"), [plain, plain]),
}
MODES: dict[str, Any] = {
    "inference mode": (contextlib.nullcontext, torch.inference_mode),
    "autocast": (contextlib.nullcontext, lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
}


@pytest.fixture(autouse=True)
def settings() -> Any:
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    torch.use_deterministic_algorithms(False)
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", CASES)
def test_a_branch_is_taken_as_eagerly(name: str) -> None:
    ask, sides = CASES[name]

    def compute(self: Asking, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.to(self.linear.weight.dtype)) * (2 if ask(self, x) else 3)

    compute.__qualname__ = "Hot.forward"

    class Hot(Asking):
        forward = inference(compute)

    for first in (0, 1):
        layer = Hot()
        with torch.no_grad():
            for side in (first, 1 - first, first):
                x = sides[side](layer)
                with MODES.get(name, (contextlib.nullcontext,) * 2)[side]():
                    for _ in range(2):
                        same(layer(x), compute(layer, x), 2e-2 if name == "autocast" else 1e-5)


SETTERS: dict[str, Callable[[], object]] = {
    "manual_seed": lambda: torch.manual_seed(7),
    "a generator's own": lambda: torch.default_generator.manual_seed(7),
    "set_rng_state": lambda: torch.set_rng_state(torch.get_rng_state()),
    "set_default_dtype": lambda: torch.set_default_dtype(torch.float32),
    "set_num_threads": lambda: torch.set_num_threads(1),
    "set_float32_matmul_precision": lambda: torch.set_float32_matmul_precision("highest"),
}


@pytest.mark.parametrize("name", SETTERS)
def test_what_outlasts_the_call_happens_at_every_call(name: str) -> None:
    act = SETTERS[name]

    def compute(self: Asking, x: torch.Tensor) -> torch.Tensor:
        act()
        return self.linear(x)

    compute.__qualname__ = "Hot.forward"

    class Hot(Asking):
        forward = inference(compute)

    layer, drawn = Hot(), []
    with torch.no_grad():
        for _ in range(3):
            same(layer(X), compute(layer, X))
            layer(X)
            drawn.append(float(torch.rand(())))
    eagerly("which outlasts the call")
    assert counts()["eager_calls"] == 6
    if name in ("manual_seed", "a generator's own"):
        assert len(set(drawn)) == 1


class Viewing(Block):
    @inference(fallback="error")
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).view(x.shape[0], -1, 2) + x.view(x.shape[0], -1, 2)


def test_parts_of_a_tensor_are_one_model_wherever_they_lie_and_however_much_is_around_them() -> None:
    layer, data = Viewing().eval(), torch.randn(64, 4)
    with torch.no_grad():
        for start in range(0, 64, 8):
            x = data[start : start + 8]
            same(layer(x), layer.linear(x).view(8, -1, 2) + x.view(8, -1, 2))
        assert counts()["captures"] == 1
        for length in range(3, 12):  # the last of a sequence that grows
            x = torch.randn(3, length, 4)[:, -1]
            same(layer(x), layer.linear(x).view(3, -1, 2) + x.view(3, -1, 2))
    assert counts()["captures"] == 2 and counts()["eager_calls"] == 0


def test_a_view_that_eager_cannot_give_is_not_given() -> None:
    def flat(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1) * 2

    hot = inference(flat)
    with torch.no_grad():
        for x in (torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(3, 8)[:, :4], torch.randn(1, 8)[:, :4]):
            try:
                expected = flat(x)
            except RuntimeError as fault:
                with pytest.raises(RuntimeError, match=str(fault)[:30]):
                    hot(x)
            else:
                same(hot(x), expected)


@pytest.fixture
def precisions() -> Iterator[list[Any]]:
    """The settings of float32 on a GPU, as PyTorch's newer interface has them, which are put back."""
    backends = torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn
    before = [each.fp32_precision for each in backends]
    yield [*backends]
    for each, value in zip(backends, before, strict=True):
        each.fp32_precision = value


class OfBackends(torch.nn.Module):
    @inference()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + (1 if torch.backends.mha.get_fastpath_enabled() else 2)


def test_code_that_names_the_backends_is_served_whichever_way_their_precision_was_set(precisions: list[Any]) -> None:
    """PyTorch raises where the older of its two interfaces is asked after the newer one was used."""
    for each in precisions:
        each.fp32_precision = "tf32"
    with pytest.raises(RuntimeError):
        torch.get_float32_matmul_precision()
    layer = OfBackends()
    with torch.no_grad():
        for _ in range(3):
            same(layer(torch.ones(2, 3)), torch.full((2, 3), 2.0))
    assert counts()["eager_calls"] == 0


class OfOneBackend(torch.nn.Module):
    """Asks one setting of the backends, of which there are many."""

    @inference(backend="onnxruntime")
    def forward(self, x: torch.Tensor, name: str) -> torch.Tensor:
        if name == "generic":
            asked = torch.backends.fp32_precision == "ieee"
        elif name == "mkldnn":
            asked = torch.backends.mkldnn.matmul.fp32_precision == "bf16"
        elif name == "cuda":
            asked = torch.backends.cuda.matmul.fp32_precision == "ieee"
        else:
            asked = not torch.backends.cuda.flash_sdp_enabled()
        return torch.relu(x) + (1 if asked else 2)


@pytest.mark.parametrize(
    ("name", "setting", "values"),
    [
        ("generic", torch.backends, ("none", "ieee")),
        ("mkldnn", torch.backends.mkldnn.matmul, ("tf32", "bf16")),
        ("cuda", torch.backends.cuda.matmul, ("tf32", "ieee")),
        ("fused", None, (True, False)),
    ],
)
def test_each_setting_of_the_backends_is_followed(
    name: str, setting: Any, values: tuple[Any, Any], precisions: list[Any]
) -> None:
    """However it was made; the older interface raises once the newer one was used."""
    layer, x = OfOneBackend(), torch.ones(2, 3)

    def make(value: Any) -> None:
        if setting is None:
            torch.backends.cuda.enable_flash_sdp(value)
        else:
            setting.fp32_precision = value

    before = torch.backends.cuda.flash_sdp_enabled() if setting is None else setting.fp32_precision
    try:
        for value in (values[0], values[0], values[1], values[0], values[1]):
            make(value)
            with torch.no_grad():
                same(layer(x, name), torch.full((2, 3), 2.0 if value == values[1] else 3.0))
    finally:
        make(before)
    # PyTorch hands the general setting on to its parts, and does not take it back there.
    assert 2 <= counts()["captures"] <= 3 and counts()["eager_calls"] == 0


def test_what_keeps_pytorchs_own_tracer_from_working_is_said(
    precisions: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    _, conv, rnn = precisions
    conv.fp32_precision, rnn.fp32_precision = "ieee", "tf32"
    layer = OfBackends()
    with torch.no_grad():
        for _ in range(2):
            same(layer(torch.ones(2, 3)), torch.full((2, 3), 2.0))
    assert torch.backends.mkldnn.enabled and torch.backends.cudnn.enabled  # the tracer leaves the first one off
    assert re.search(r"rnn\.fp32_precision differ.*Set both to the same", caplog.text)

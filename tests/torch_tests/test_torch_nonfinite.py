"""NaNs and infinities come out of a served method where they come out of the eager one, under the default options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch_support import counts, same, served

import hybrid_infer
from hybrid_infer import StaticModelError, inference
from hybrid_infer.checks import _comparison

ODD = [float("nan"), float("inf"), float("-inf")]


class Network(torch.nn.Module):
    """Convolutions, a pool and a classifier, as in a ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(16)
        self.pool = torch.nn.MaxPool2d(3, 2, 1)
        self.second = torch.nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.pool(torch.relu(self.norm(self.first(x)))))


def odd(x: torch.Tensor) -> list[torch.Tensor]:
    found = []
    for value in ODD:
        for place in (0, x.numel() // 2 + 1, -1):
            spoiled = x.clone()
            spoiled.view(-1)[place] = value
            found.append(spoiled)
    return found


def alike(hot: Callable[..., Any], eager: Callable[..., Any], x: torch.Tensor, tolerance: float = 1e-4) -> None:
    with torch.no_grad():
        for each in (x, *odd(x), x):
            same(hot(each), eager(each), tolerance)


def test_a_network_with_a_pool() -> None:
    torch.manual_seed(0)
    layer = Network().eval()
    hot = inference(layer, backend="onnxruntime")
    alike(hot, Network.forward.__get__(layer), torch.randn(2, 3, 16, 16))
    assert counts()["eager_calls"] == 0


def test_a_first_call_with_a_nan_is_served_from_then_on() -> None:
    layer = Network().eval()
    hot = inference(layer, backend="onnxruntime", fallback="error")
    with torch.no_grad():
        for x in (*odd(torch.randn(2, 3, 16, 16)), torch.randn(2, 3, 16, 16)):
            same(hot(x), Network.forward(layer, x), 1e-4)
    served(captures=1)


def test_a_weight_that_is_nan() -> None:
    layer = Network().eval()
    hot = inference(layer, backend="onnxruntime")
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        same(hot(x), Network.forward(layer, x), 1e-4)
        layer.first.weight[3, 1, 1, 1] = torch.nan
        same(hot(x), Network.forward(layer, x), 1e-4)


@pytest.mark.parametrize(
    "method",
    [
        lambda x: x.amax(-1), lambda x: x.min(0).values, lambda x: F.normalize(x, dim=-1), lambda x: x.clamp(min=0.1),
        lambda x: x.clamp(max=0.1), lambda x: x.sign(), lambda x: torch.atan2(x, x + 1), lambda x: x % 0.3,
        lambda x: 0.3 % x, lambda x: x.max(), lambda x: torch.linalg.vector_norm(x, float("inf"), dim=1),
    ],
    ids=["amax", "min", "normalize", "clamp_min", "clamp_max", "sign", "atan2", "remainder", "divisor", "all", "norm"],
)  # fmt: skip
def test_single_operators_are_served(method: Callable[..., Any]) -> None:
    torch.manual_seed(1)
    alike(inference(method, backend="onnxruntime", fallback="error"), method, torch.randn(5, 24))


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.LSTM(6, 5, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0]


@pytest.mark.parametrize(
    "method",
    [lambda x: x.argmax(-1), lambda x: x.topk(3).values, lambda x: x.sort(-1).indices, lambda x: x.round().unique(),
     Recurrent().eval()],
    ids=["argmax", "topk", "sort", "unique", "lstm"],
)  # fmt: skip
def test_what_the_engine_has_no_exact_form_of_is_answered_eagerly(method: Callable[..., Any]) -> None:
    torch.manual_seed(2)
    eager = method.forward if isinstance(method, torch.nn.Module) else method
    hot = inference(method, backend="onnxruntime")
    alike(hot, eager, torch.randn(2, 4, 6), 1e-5)
    before = counts()["eager_calls"]
    assert before > 0
    with torch.no_grad():
        hot(torch.randn(2, 4, 6))
    assert counts()["eager_calls"] == before


@pytest.mark.parametrize("method", [lambda x: x.argmax(-1), Recurrent().eval()], ids=["argmax", "lstm"])
def test_a_first_call_that_the_engine_refuses_says_nothing_about_others(
    monkeypatch: pytest.MonkeyPatch, method: Callable[..., Any]
) -> None:
    monkeypatch.setattr(_comparison, "_RETRY", 0.0)
    eager = method.forward if isinstance(method, torch.nn.Module) else method
    hot = inference(method, backend="onnxruntime")
    x = torch.randn(2, 4, 6)
    with torch.no_grad():
        for each in (*odd(x)[:3], x, x):
            same(hot(each), eager(each), 1e-5)
    found = counts()
    assert (found["captures"], found["bindings"], found["hits"]) == (1, 1, 1), found


def test_a_saved_model_gives_the_nan_or_refuses_it(tmp_path: Path) -> None:
    layer = Network().eval()
    x = torch.randn(2, 3, 16, 16)
    hybrid_infer.save(layer, str(tmp_path / "network"), [hybrid_infer.InputSpec.from_tensor(x)])
    loaded = hybrid_infer.load(str(tmp_path / "network"), backend="onnxruntime")
    with torch.no_grad():
        for each in odd(x):
            same(loaded(each), layer(each), 1e-4)
    hybrid_infer.save(Recurrent().eval(), str(tmp_path / "lstm"), [hybrid_infer.InputSpec([2, 4, 6])])
    loaded = hybrid_infer.load(str(tmp_path / "lstm"), backend="onnxruntime")
    with pytest.raises(StaticModelError, match="NaN"):
        loaded(torch.full((2, 4, 6), torch.nan))


@pytest.mark.parametrize(
    "method",
    [
        lambda x, y: x % y, lambda x, y: x // y, lambda x, y: torch.div(x, y, rounding_mode="floor"),
        lambda x, y: x % 0.1, lambda x, y: x // 0.1, lambda x, y: 6.0 // y,
        lambda x, y: torch.div(x.long(), 3, rounding_mode="floor"),
        lambda x, y: torch.div(x.long(), (y * 10).long(), rounding_mode="trunc"),
    ],
    ids=["remainder", "floor", "mode", "by_number", "floor_by_number", "of_number", "whole", "trunc"],
)  # fmt: skip
def test_divisions_of_large_numbers(method: Callable[..., Any]) -> None:
    """What the exporter makes of them is wrong in all digits, or by one, which no comparison with small ones tells."""
    hot = inference(method, backend="onnxruntime", fallback="error")
    y = torch.tensor([0.1, 0.3, -1.7, 3.0])
    for numbers in ([0.5, -0.5, 1.5, 2.5], [6.0, -9.0, 1e7, 1e10], [1e8, -1e8, 1e7, 7.0]):
        x = torch.tensor(numbers)
        assert torch.equal(hot(x, y), method(x, y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "method",
    [
        lambda x: x.log1p(), lambda x: x.expm1(), lambda x: F.logsigmoid(x), lambda x: torch.logaddexp(x, x.flip(-1)),
        lambda x: torch.logaddexp2(x, x.flip(-1)), lambda x: torch.logaddexp(x[:1, :1], x),
        lambda x: F.binary_cross_entropy_with_logits(x, torch.ones_like(x), reduction="none"),
    ],
    ids=["log1p", "expm1", "logsigmoid", "logaddexp", "logaddexp2", "broadcast", "bce"],
)  # fmt: skip
def test_logarithms_and_powers_of_small_and_large_numbers(method: Callable[..., Any], dtype: torch.dtype) -> None:
    """The first call, with numbers about one, is the one that is verified."""
    torch.manual_seed(3)
    hot = inference(method, backend="onnxruntime", fallback="error")
    x = torch.randn(4, 24, dtype=dtype)
    exact = 1e-5 if dtype is torch.float32 else 1e-12
    with torch.no_grad():
        same(hot(x), method(x))
        for size in (1e-30, 1e-8, 1e-4, 0.1, 10.0, 20.0, 80.0, 1e3, 1e20):
            torch.testing.assert_close(hot(x * size), method(x * size), rtol=exact, atol=0.0, equal_nan=True)
        for each in odd(x):
            same(hot(each), method(each), 1e-4)


def test_sums_of_powers_along_an_axis_are_right_for_numbers_far_apart() -> None:
    def method(x: torch.Tensor) -> torch.Tensor:
        return x.logcumsumexp(-1)

    hot, x = inference(method), torch.randn(3, 8)
    with torch.no_grad():
        for size in (1.0, 100.0, 1e4, 1e20):
            same(hot(x * size), method(x * size))
        for each in odd(x):
            same(hot(each), method(each))
    served(captures=1)


def test_log_softmax_of_float64() -> None:
    def eager(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.log_softmax(x, -1), torch.log_softmax(x.float(), 0, dtype=torch.float64)

    alike(inference(backend="onnxruntime")(eager), eager, torch.randn(4, 5, dtype=torch.float64))
    assert counts()["hits"] > 0

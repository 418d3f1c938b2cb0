"""What a method may ask of a tensor or of Paddle, beside types and sizes, is answered as eagerly on each side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
import pytest
from paddle_support import Block, counts, eagerly, grid, same, served

from hybrid_infer import inference


class Asking(Block):
    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([4, 4])


def plain(_: Asking) -> Any:
    return grid(4, 4)


def transposed(_: Asking) -> Any:
    return grid(4, 4).t()


def differentiable(_: Asking) -> Any:
    x = grid(4, 4)
    x.stop_gradient = False
    return x


def computed(layer: Asking) -> Any:
    with paddle.enable_grad():
        return differentiable(layer) * 1


def parameter(layer: Asking) -> Any:
    return layer.create_parameter([4, 4])


def _weight(stop: bool) -> Callable[[Asking], Any]:
    def apply(layer: Asking) -> Any:
        layer.weight.stop_gradient = stop
        return grid(4, 4)

    return apply


def _flag(value: bool) -> Callable[[Asking], Any]:
    def apply(_: Asking) -> Any:
        paddle.set_flags({"FLAGS_check_nan_inf": value})
        return grid(4, 4)

    return apply


def _default(dtype: str) -> Callable[[Asking], Any]:
    def apply(_: Asking) -> Any:
        paddle.set_default_dtype(dtype)
        return grid(4, 4).astype("float32")

    return apply


def _retyped(layer: Asking) -> Any:
    layer.weight = layer.create_parameter([4, 4], dtype="float64")
    return grid(4, 4)


CASES: dict[str, tuple[Callable[[Asking, Any], Any], list[Callable[[Asking], Any]]]] = {
    "stop_gradient": (lambda s, x: x.stop_gradient, [plain, differentiable]),
    "stop_gradient of a weight": (lambda s, x: s.weight.stop_gradient, [_weight(True), _weight(False)]),
    "is_leaf": (lambda s, x: x.is_leaf, [plain, computed]),
    "class": (lambda s, x: isinstance(x, paddle.base.framework.EagerParamBase), [plain, parameter]),
    "strides": (lambda s, x: x.strides[0] == 4, [plain, transposed]),
    "is_contiguous": (lambda s, x: x.is_contiguous(), [plain, transposed]),
    "data_ptr": (lambda s, x: x.data_ptr() % 2 == 0, [plain, transposed]),
    "place": (lambda s, x: x.place.is_cpu_place(), [plain, transposed]),
    "dtype": (lambda s, x: x.dtype == paddle.float64, [plain, lambda layer: grid(4, 4).astype("float64")]),
    "dtype of a weight": (lambda s, x: s.weight.dtype == paddle.float64, [plain, _retyped]),
    "default element type": (
        lambda s, x: paddle.get_default_dtype() == "float64",
        [_default("float32"), _default("float64")],
    ),
    "flags": (
        lambda s, x: paddle.get_flags("FLAGS_check_nan_inf")["FLAGS_check_nan_inf"], [_flag(False), _flag(True)]
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def settings() -> Any:
    yield
    paddle.set_default_dtype("float32")
    paddle.set_flags({"FLAGS_check_nan_inf": False})


@pytest.mark.parametrize("name", CASES)
def test_a_branch_is_taken_as_eagerly(name: str) -> None:
    ask, sides = CASES[name]

    def compute(self: Asking, x: Any) -> Any:
        return self.linear(x.astype("float32")) * (2 if ask(self, x) else 3)

    compute.__qualname__ = "Hot.forward"

    class Hot(Asking):
        forward = inference(compute)

    for first in (0, 1):
        paddle.set_default_dtype("float32")
        layer = Hot()
        with paddle.no_grad():
            for side in (first, 1 - first, first):
                x = sides[side](layer)
                for _ in range(2):
                    same(layer(x), compute(layer, x))


def test_the_device_that_is_set_may_be_set_again() -> None:
    """Detectors do so around what has kernels for the CPU alone."""
    device = paddle.get_device()

    def compute(self: Asking, x: Any) -> Any:
        before = paddle.device.get_device()
        paddle.device.set_device(device)
        found = self.linear(x)
        paddle.set_device(before)
        return found

    compute.__qualname__ = "Hot.forward"

    class Hot(Asking):
        forward = inference(compute)

    layer = Hot()
    with paddle.no_grad():
        for _ in range(3):
            same(layer(grid(2, 4)), compute(layer, grid(2, 4)))
    served(1)


def test_a_seed_that_is_set_is_set_at_every_call() -> None:
    def compute(self: Asking, x: Any) -> Any:
        paddle.seed(7)
        return self.linear(x)

    compute.__qualname__ = "Hot.forward"

    class Hot(Asking):
        forward = inference(compute)

    layer, drawn = Hot(), []
    with paddle.no_grad():
        for _ in range(3):
            same(layer(grid(2, 4)), compute(layer, grid(2, 4)))
            layer(grid(2, 4))
            drawn.append(paddle.rand([1]).item())
    eagerly("which outlasts the call")
    assert counts()["eager_calls"] == 6 and len(set(drawn)) == 1

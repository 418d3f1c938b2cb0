"""Plain Python of eager code: lists with tensors in them, classes of tensors, the mode, caches and ``PyLayer``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle import in_dynamic_mode as told  # noqa: E402
from paddle_support import counts, grid, right, same  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
make = paddle.assign


def lists(x: Any) -> Any:
    low, high = x.min(), x.max()
    return [f([low, high]) for f in (paddle.assign, paddle.to_tensor, make)]


def of_several_kinds(x: Any) -> Any:
    low, whole = x.min(), x.max().astype("int64")
    numbers = [paddle.to_tensor([low, 1.0]), paddle.assign([low, 1]), paddle.to_tensor([whole, 2.5])]
    numbers += [paddle.to_tensor([whole, 2]), paddle.assign([whole, whole.astype("int32")])]
    return numbers, paddle.to_tensor([x > 0])


def nested(x: Any) -> Any:
    low = x.min()
    deep = [[low, 1.0], (2.0, low)]
    whole = paddle.to_tensor([low], dtype="int32")
    return paddle.to_tensor(deep), paddle.assign(deep), paddle.to_tensor([x, x * 2]), whole


def of_half(x: Any) -> Any:
    half = x.astype("float16")
    return paddle.to_tensor([half, half]), paddle.to_tensor([x.shape[0], 3]), paddle.to_tensor((x.shape[1], 3.0))


@pytest.mark.parametrize("method", [lists, of_several_kinds, nested, of_half])
def test_lists_with_tensors_in_them(method: Any) -> None:
    right(method, *[(grid(n, 3),) for n in (1, 2, 4, 4, 7)])


def classes(x: Any) -> Any:
    y, n = x * 2, x.shape[0]
    if type(y) is paddle.Tensor and type(n) is int and isinstance(n, int) and not isinstance(n, paddle.Tensor):
        y = y + 1
    if isinstance(y, (list, paddle.Tensor)) and type(y) in (float, paddle.Tensor) and type(y) is type(x):
        y = y * 3
    return y + len(type(y).__name__)


def by_another_name(x: Any, type: Any = str) -> Any:
    return x + len(type(x.ndim))


@pytest.mark.parametrize("method", [classes, by_another_name])
def test_classes_of_tensors(method: Any) -> None:
    right(method, *[(grid(n, 3),) for n in (1, 2, 4, 4, 7)])


def inside(x: Any) -> Any:
    return x * 3 if paddle.in_dynamic_mode() else x


def mode(x: Any) -> Any:
    if paddle.in_dynamic_mode() and told():
        x = inside(x) + 1
    if paddle.base.framework.in_pir_mode() or paddle.base.dygraph.base.in_to_static_mode():
        return x - 1
    return paddle.nn.functional.relu(x) if paddle.framework.in_dynamic_mode() else x


def test_the_mode_is_that_of_eager_code() -> None:
    right(mode, (grid(2, 3),), (grid(4, 3),))


def test_where_the_eager_side_cannot_be_traced_the_other_one_is() -> None:
    def method(x: Any) -> Any:
        if paddle.in_dynamic_mode():
            return x * float(x.max().numpy())
        return x * x.max()

    right(method, (grid(2, 3),), (grid(4, 3) * 2,))


@functools.lru_cache
def mask(rows: int) -> Any:
    return paddle.tril(paddle.ones([rows, 3]))


class Cached(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(3, 3)

    @functools.lru_cache  # noqa: B019
    def twice(self, rows: int) -> Any:
        return mask(rows) * 2

    def forward(self, x: Any) -> Any:
        return self.linear(x) * mask(x.shape[0]) + self.twice(x.shape[0])


def test_caches_hold_no_values_of_a_program() -> None:
    mask.cache_clear()
    layer = Cached().eval()
    fast = inference(layer, backend="onnxruntime", verify="off")
    with paddle.no_grad():
        found = [fast(grid(n, 3)) for n in (2, 4, 4, 7)]
        assert mask.cache_info().currsize == 0 and counts()["eager_calls"] == 0
        for n, each in zip((2, 4, 4, 7), found, strict=True):
            same(each, Cached.forward(layer, grid(n, 3)))
        same(fast(grid(5, 3)), Cached.forward(layer, grid(5, 3)))
    assert counts()["eager_calls"] == 0


def test_functions_of_compiled_modules_do_not_stop_a_capture() -> None:
    def method(x: Any) -> Any:
        return x + float(np.random.default_rng(0).standard_normal(3).sum())

    fast = inference(method, backend="onnxruntime")
    with paddle.no_grad():
        same(fast(grid(2, 3)), method(grid(2, 3)))


class Scaled(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Any, scale: float, shift: bool = False) -> Any:
        ctx.save_for_backward(x)
        ctx.scale, positive = scale, x > 0
        ctx.mark_non_differentiable(positive)
        if x.shape[0] > 3:
            scale = scale * 2
        return x * scale, (x + 1 if shift else x), positive

    @staticmethod
    def backward(ctx: Any, left: Any, right: Any, positive: Any) -> Any:
        return left * 100 + right


class Kinds:
    scaled = Scaled


def with_layers(x: Any) -> Any:
    left, right, positive = Scaled.apply(x, 2.0, shift=True)
    other, same, _ = Kinds.scaled.apply(x, 3.0)
    return left + right, other * same, positive


def test_a_layer_of_python_is_its_forward_function() -> None:
    right(with_layers, *[(grid(n, 3),) for n in (1, 2, 4, 4, 7)])


class StraightThrough(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return paddle.round(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 3


def test_its_gradient_is_that_of_its_backward_function() -> None:
    def method(x: Any) -> Any:
        return StraightThrough.apply(x * 2)

    fast = inference(method, backend="onnxruntime")
    found = []
    for each in (fast, fast, method):
        x = grid(2, 3)
        x.stop_gradient = False
        each(x).sum().backward()
        found.append(x.grad)
    same(found[0], found[2])
    same(found[1], found[2])
    assert counts()["eager_calls"] == 0


class Clipped(StraightThrough):
    @classmethod
    def apply(cls, x: Any) -> Any:
        return super().apply(paddle.clip(x, -8.0, 7.0))


class Bounded(StraightThrough):
    @staticmethod
    def apply(x: Any) -> Any:
        return paddle.clip(StraightThrough.apply(x), -8.0, 7.0)


@pytest.mark.parametrize("kind", [Clipped, Bounded])
def test_an_apply_of_its_own_is_not_passed_by(kind: Any) -> None:
    def method(x: Any) -> Any:
        return kind.apply(x) * 0.5

    fast = inference(method, backend="onnxruntime")
    with paddle.no_grad():
        for scale in (1.0, 5.0, 20.0):
            x = paddle.to_tensor([1.2, -0.7, 0.4]) * scale
            same(fast(x), method(x))

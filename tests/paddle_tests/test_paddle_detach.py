"""``Tensor.detach()``, which the tracer writes down as an operator in place, and which writes nothing."""

from __future__ import annotations

from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import grid  # noqa: E402
from support import answered, counts  # noqa: E402

from hybrid_infer import inference  # noqa: E402

X = grid(2, 4)


class Layer(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(4, 4)

    def between(self, x: Any) -> Any:
        y = self.linear(x)
        return y.detach() * 2 + y

    def of_a_weight(self, x: Any) -> Any:
        return x + self.linear.weight.detach().sum()

    def of_an_argument(self, x: Any) -> Any:
        return x.detach() * 2 + x

    def refined(self, x: Any) -> Any:
        points = x * 0.5
        for _ in range(3):
            points = paddle.nn.functional.sigmoid(self.linear(points) + points.detach()).detach()
        return points

    def writing(self, x: Any) -> Any:
        y = self.linear(x)
        z = y.detach()
        z[0] = 7.0
        return y * 1, z + 1


@pytest.mark.parametrize("name", ["between", "of_a_weight", "of_an_argument", "refined"])
def test_a_detached_tensor_is_served(name: str) -> None:
    class Hot(Layer):
        pass

    setattr(Hot, name, inference(fallback="error")(getattr(Layer, name)))
    layer = Hot()
    for n in range(3):
        with paddle.no_grad():
            mine, eager = getattr(layer, name)(X + n), getattr(Layer, name)(layer, X + n)
        assert paddle.allclose(mine, eager, atol=1e-6).item()
    assert counts()["eager_calls"] == 0 and counts()["captures"] == 1


def test_what_is_written_to_a_detached_tensor_is_written_to_the_tensor() -> None:
    class Hot(Layer):
        writing = inference()(Layer.writing)

    layer = Hot()
    with paddle.no_grad():
        for n in range(3):
            for mine, eager in zip(layer.writing(X + n), Layer.writing(layer, X + n), strict=True):
                assert paddle.allclose(mine, eager, atol=1e-6).item()
    answered(("set_value_",), calls=3)

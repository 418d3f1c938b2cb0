"""``isinstance(x, paddle.Tensor)`` in a method: what stands for a tensor in a trace is of another class."""

from __future__ import annotations

import collections.abc
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import grid  # noqa: E402
from support import counts  # noqa: E402

from hybrid_infer import inference  # noqa: E402

X = grid(2, 4)


def _helper(value: Any) -> Any:
    return value * 2 if isinstance(value, paddle.Tensor) else 100.0


class Layer(paddle.nn.Layer):
    def one(self, x: Any, mask: Any = None) -> Any:
        return x + mask if isinstance(mask, paddle.Tensor) else x - 1

    def several(self, x: Any, mask: Any = None) -> Any:
        return x + mask if isinstance(mask, (list, paddle.Tensor)) else x - 1

    def union(self, x: Any, mask: Any = None) -> Any:
        return x + mask if isinstance(mask, int | paddle.Tensor) else x - 1

    def computed(self, x: Any, mask: Any = None) -> Any:
        parts = [x * 2, mask, 3]
        return sum((part for part in parts if isinstance(part, paddle.Tensor)), x)

    def elsewhere(self, x: Any, mask: Any = None) -> Any:
        return x + _helper(mask) + _helper(None)

    def none_of_it(self, x: Any, mask: Any = None) -> Any:
        if isinstance(x, (int, str, list, paddle.nn.Layer)) or isinstance(None, paddle.Tensor):
            return x * 100
        return x * 2 if isinstance(x, collections.abc.Hashable) and isinstance(self, paddle.nn.Layer) else x


@pytest.mark.parametrize("name", ["one", "several", "union", "computed", "elsewhere", "none_of_it"])
def test_what_is_asked_of_a_tensor_is_answered_as_eagerly(name: str) -> None:
    class Hot(Layer):
        pass

    setattr(Hot, name, inference(verify="off", fallback="error")(getattr(Layer, name)))
    layer = Hot()
    with paddle.no_grad():
        for mask in (X + 2, None, X + 3, None) if name not in ("elsewhere", "computed") else (X + 2, X + 3):
            mine, eager = getattr(layer, name)(X, mask), getattr(Layer, name)(layer, X, mask)
            assert paddle.allclose(mine, eager, atol=1e-6).item()
    assert counts()["eager_calls"] == 0


def test_a_function_of_the_program_under_that_name_is_called() -> None:
    scope: dict[str, Any] = {"paddle": paddle}

    @inference(verify="off", fallback="error")
    def asked(x: Any) -> Any:
        isinstance = scope.get("isinstance", lambda value, kinds: False)
        return x * 2 if isinstance(x, paddle.Tensor) else x - 1

    with paddle.no_grad():
        for _ in range(3):
            assert paddle.allclose(asked(X), X - 1).item()

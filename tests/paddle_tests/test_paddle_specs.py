"""Specs of Paddle's own, ``paddle.static.InputSpec``, are taken where this library's are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hybrid_infer import InputSpec, inference, load, save, stats, to_static

paddle = pytest.importorskip("paddle")
pytestmark = pytest.mark.paddle


class Scaled(paddle.nn.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(4, 3)

    def forward(self, pair: Any, scale: Any = None) -> Any:
        y = self.linear(pair["x"])
        return y if scale is None else y * scale[0]


def made() -> Any:
    layer = Scaled()
    layer.eval()
    return layer


THEIRS = paddle.static.InputSpec([None, 4], "float32", "images")


def test_a_layer_is_saved_with_them(tmp_path: Path) -> None:
    layer, x = made(), {"x": paddle.rand([5, 4])}
    save(layer, tmp_path / "model", [{"x": THEIRS}, [paddle.static.InputSpec([3], "float32")]], trainable=False)
    static, scale = load(tmp_path / "model", backend="onnxruntime"), paddle.rand([3])
    specs = static.input_spec
    assert specs[0] == {"x": InputSpec([None, 4], "float32", "images")} and specs[1][0].shape == (3,)
    with paddle.no_grad():
        assert paddle.allclose(static(x, [scale]), layer(x, [scale]), atol=1e-6)


def test_a_function_of_a_layer_is_saved_with_them(tmp_path: Path) -> None:
    def step(model: Any, x: Any) -> Any:
        return model({"x": x}) + 1

    layer, x = made(), paddle.rand([2, 4])
    save(step, tmp_path / "model", [layer, THEIRS], trainable=False)
    with paddle.no_grad():
        assert paddle.allclose(load(tmp_path / "model", backend="onnxruntime")(x), step(layer, x), atol=1e-6)


@pytest.mark.parametrize("decorate", [inference, to_static])
def test_they_compile_ahead(decorate: Any) -> None:
    linear = paddle.nn.Linear(4, 3)
    linear.eval()
    served = decorate(linear, backend="onnxruntime", input_spec=[THEIRS])
    assert served.forward.__hybrid_infer__.options.input_spec == (InputSpec([None, 4], "float32", "images"),)
    with paddle.no_grad():
        for batch in (2, 7):
            served(paddle.rand([batch, 4]))
    (counts,) = stats().values()
    assert (counts["captures"], counts["hits"], counts["eager_calls"]) == (1, 2, 0)


def test_a_result_that_is_the_argument_itself_for_the_sizes_of_the_example_is_saved_for_all(tmp_path: Path) -> None:
    def even(x: Any) -> Any:
        return x[: x.shape[0] - x.shape[0] % 2], x * 2

    save(even, tmp_path / "model", [THEIRS], trainable=False)
    static = load(tmp_path / "model", backend="onnxruntime")
    for count in (2, 3, 8, 9):
        x = paddle.rand([count, 4])
        for mine, eager in zip(static(x), even(x), strict=True):
            assert mine.shape == eager.shape and paddle.allclose(mine, eager)

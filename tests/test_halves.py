"""What is computed in half precision and returned in float32 agrees to what half precision can tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import counts

from hybrid_infer import InputSpec, inference, load, save
from hybrid_infer.checks import _halves, _verify

pytestmark = pytest.mark.torch


class Model(torch.nn.Module):
    """Its results: in its own type, cast as logits are, and apart from all that, in float32."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True)
        self.head = torch.nn.Linear(width, 200)

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> Any:
        y = self.head(self.layer(x))
        return y, y.float(), other.float().exp()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_logits_in_float32_of_a_model_in_half_precision_are_served(name: str) -> None:
    torch.manual_seed(0)
    dtype = getattr(torch, name)
    layer = Model().to(dtype).eval()
    hot = inference(layer, fallback="error")
    with torch.no_grad():
        for rows in (16, 20, 24):
            given = torch.randn(2, rows, 64, dtype=dtype), torch.randn(4)
            expected, found = Model.forward(layer, *given), hot(*given)
            tolerance = _verify.TOLERANCES[name][0]
            assert [t.dtype for t in found] == [dtype, torch.float32, torch.float32]
            torch.testing.assert_close(found[1], expected[1], rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(found[2], expected[2])
    assert counts()["hits"] >= 1 and counts()["eager_calls"] == 0


def test_they_are_saved_too(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = Model().bfloat16().eval()
    save(layer, tmp_path / "m", [InputSpec([None, None, 64], "bfloat16"), InputSpec([None], "float32")])
    x, other = torch.randn(2, 5, 64).bfloat16(), torch.randn(3)
    with torch.no_grad():
        torch.testing.assert_close(load(tmp_path / "m")(x, other)[1], layer(x, other)[1], rtol=4e-2, atol=4e-2)


def test_a_result_that_is_computed_in_float32_alone_agrees_as_closely_as_before() -> None:
    tried: list[Any] = []

    def compare(precision: Any) -> float:
        tried.append(precision)
        left = [np.float32([1.0]), np.float32([1.0])]
        right = [np.float32([1.02]), np.float32([1.0 + off])]
        return _verify.compare(left, right, ["float32"] * 2, from_floats=True, precision=precision)

    model = _model()
    off = 0.0
    assert _halves.compare(compare, "float32", lambda: model, [0, 1]) == pytest.approx(0.02, abs=1e-4)
    assert tried == ["float32", ["bfloat16", "float32"]]
    off = 0.02
    with pytest.raises(_verify.Disagreement, match=r"result 1 .*\(float32, tolerance"):
        _halves.compare(compare, "float32", lambda: model, [0, 1])
    with pytest.raises(_verify.Disagreement, match="result 0"):
        _halves.compare(compare, "float32", lambda: model, [1, 1])


def _model() -> bytes:
    """The first output goes through bfloat16 in a branch alone, the second one nowhere."""
    from onnx import TensorProto as T
    from onnx import helper as h

    def value(name: str, kind: int = T.FLOAT) -> Any:
        return h.make_tensor_value_info(name, kind, [1])

    casts = [h.make_node("Cast", ["x"], ["h"], to=T.BFLOAT16), h.make_node("Cast", ["h"], ["b"], to=T.FLOAT)]
    then, other = (
        h.make_graph(casts, "t", [], [value("b")]),
        h.make_graph([h.make_node("Identity", ["x"], ["i"])], "e", [], [value("i")]),
    )
    nodes = [
        h.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        h.make_node("Neg", ["x"], ["z"]),
    ]
    given = [value("x"), h.make_tensor_value_info("c", T.BOOL, [])]
    model: bytes = h.make_model(h.make_graph(nodes, "g", given, [value("y"), value("z")])).SerializeToString()
    return model


def _computed(*nodes: Any, given: dict[str, Any], result: Any) -> str:
    from onnx import helper as h

    inputs = [h.make_tensor_value_info(name, kind, [2]) for name, kind in given.items()]
    made = h.make_graph(list(nodes), "g", inputs, [h.make_tensor_value_info("y", result, None)])
    (found,) = _halves.computed_in(h.make_model(made).SerializeToString())
    return found


def test_what_is_only_given_in_half_precision_is_computed_as_precisely_as_ever() -> None:
    from onnx import TensorProto as T
    from onnx.helper import make_node as node

    half, wide = {"x": T.BFLOAT16}, {"x": T.BFLOAT16, "w": T.FLOAT}
    up = node("Cast", ["x"], ["f"], to=T.FLOAT)
    assert _computed(up, node("Exp", ["f"], ["y"]), given=half, result=T.FLOAT) == "float32"
    assert (
        _computed(node("Shape", ["x"], ["s"]), node("Reshape", ["w", "s"], ["y"]), given=wide, result=T.FLOAT)
        == "float32"
    )
    moved = node("Transpose", ["x"], ["t"]), node("Cast", ["t"], ["y"], to=T.FLOAT)
    assert _computed(*moved, given=half, result=T.FLOAT) == "float32"
    mask = node("Cast", ["x"], ["m"], to=T.BOOL), node("Where", ["m", "w", "w"], ["y"])
    assert _computed(*mask, given=wide, result=T.FLOAT) == "float32"
    rounded = node("Mul", ["x", "x"], ["p"]), node("Cast", ["p"], ["f"], to=T.FLOAT), node("Exp", ["f"], ["y"])
    assert _computed(*rounded, given=half, result=T.FLOAT) == "bfloat16"
    down = node("Cast", ["w"], ["h"], to=T.FLOAT16), node("Cast", ["h"], ["y"], to=T.FLOAT)
    assert _computed(*down, given={"w": T.FLOAT}, result=T.FLOAT) == "float16"


def test_a_graph_that_cannot_be_read_leaves_the_disagreement() -> None:
    def compare(precision: Any) -> float:
        raise _verify.Disagreement("they differ")

    def lost() -> bytes:
        raise OSError("the store was cleared")

    for read in (lost, lambda: b"no model"):
        with pytest.raises(_verify.Disagreement, match="they differ"):
            _halves.compare(compare, "float32", read, [0])


@pytest.mark.parametrize(("given", "expected"), [(1, "single"), (11, "float32")])
def test_float64_from_float32(given: int, expected: str) -> None:
    """Of arguments and weights of float32 alone: a method of float64 is held to the tolerance of its own type."""
    from onnx import helper

    x, y = helper.make_tensor_value_info("x", given, [2]), helper.make_tensor_value_info("y", 11, [2])
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], to=1),
        helper.make_node("Exp", ["narrow"], ["power"]),
        helper.make_node("Cast", ["power"], ["y"], to=11),
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]))
    assert _halves.computed_in(model.SerializeToString()) == [expected]

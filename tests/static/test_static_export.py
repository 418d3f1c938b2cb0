"""``hybrid-infer export``: one ONNX file that holds its weights; and the examples in the docstrings."""

from __future__ import annotations

import copy
import doctest
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from static_support import BOTH, close, kit, points

import hybrid_infer
from hybrid_infer import InputSpec, _record, cli, inference, load, save
from hybrid_infer.static import _static


@pytest.mark.parametrize("framework", BOTH)
def test_one_file_for_each_method(framework: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = kit(framework)
    layer = own.Two()
    x = points(4)
    with own.no_grad():
        layer(own.tensor(x)), layer.encode(own.tensor(x))
    save(layer, tmp_path / "model", trainable=False)
    file = tmp_path / "model.onnx"
    assert cli.main(["export", str(tmp_path / "model"), "--onnx", str(file)]) == 0
    assert "x -> output" in capsys.readouterr().out
    import onnx
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    # The graph of Paddle says nothing of how sizes of results follow from those of arguments.
    (given,), (result,) = session.get_inputs(), session.get_outputs()
    assert given.shape == ["x_0", 8] and result.shape == [f"{'x' if framework == 'torch' else 'output'}_0", 2]
    with own.no_grad():
        close(session.run(None, {"x": x})[0], own.array(layer(own.tensor(x))))
    assert {"shared.weight", "head.bias"} <= {tensor.name for tensor in onnx.load(str(file)).graph.initializer}
    again = load(file)
    close(again(points(2)), load(tmp_path / "model")(points(2)))

    assert cli.main(["export", str(tmp_path / "model"), "--onnx", str(file), "--method", "encode", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gives"].startswith("code")
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    code, given = session.run(None, {"x": x})
    with own.no_grad():
        close(code, own.array(layer.encode(own.tensor(x))["code"]))
    close(given, x)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_mask_that_leaves_nothing_is_no_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """True pads in torch's transformers, and all of it padded is what they fail for."""
    own = kit("torch")
    nn = own.module.nn

    class Encoder(own.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)

        def forward(self, x: Any, padded: Any) -> Any:
            return self.blocks(x, src_key_padding_mask=padded)[:, 0]

    encoder = Encoder().eval()
    save(encoder, tmp_path / "model", [InputSpec([None, 5, 8]), InputSpec([None, 5], "bool")], trainable=False)
    static = load(tmp_path / "model")
    for batch in (2, 3):
        x, padded = points(batch * 5, 8).reshape(batch, 5, 8), np.arange(5) >= np.full((batch, 1), 3)
        with own.no_grad():
            close(static(x, padded), own.array(encoder(own.tensor(x), own.tensor(padded))))
    assert cli.main(["export", str(tmp_path / "model"), "--onnx", str(tmp_path / "m.onnx")]) == 0
    assert "x, padded -> output" in capsys.readouterr().out


@pytest.mark.torch
def test_what_goes_wrong_is_one_line_and_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = kit("torch")
    save(own.Linear(8, 2), tmp_path / "model", [InputSpec([2, 8])], trainable=False)
    for arguments, words in (
        ([str(tmp_path / "nothing"), "--onnx", str(tmp_path / "m.onnx")], "no such file"),
        ([str(tmp_path / "model"), "--onnx", str(tmp_path / "m.onnx"), "--method", "other"], "it has forward"),
        ([str(tmp_path / "model"), "--onnx", str(tmp_path / "no" / "m.onnx")], "cannot be written"),
    ):
        assert cli.main(["export", *arguments]) == 1
        told = capsys.readouterr()
        assert words in told.err and len(told.err.splitlines()) == 1 and not told.out
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.torch
@pytest.mark.parametrize("module", [_static, _record], ids=["static", "record"])
def test_the_examples_in_the_docstrings(module: Any) -> None:
    pytest.importorskip("torch")
    found = doctest.testmod(module)
    assert found.failed == 0 and found.attempted > 0


def test_records_are_copied_and_pickled() -> None:
    record, fields = _record.Record(a=1, b=None), _record.FieldTuple([("left", 1), ("right", [2])])
    for again in (copy.deepcopy, copy.copy, lambda value: pickle.loads(pickle.dumps(value))):
        assert again(record).b is None and again(record)[0] == 1
        assert again(fields) == (1, [2]) and again(fields).right == [2]
    with pytest.raises(AttributeError, match="left, right"):
        _ = fields.other


@pytest.mark.torch
def test_a_number_that_varied_is_an_input(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    @inference
    def repeated(x: Any, count: int) -> Any:
        return x * count

    with torch.no_grad():
        repeated(torch.ones(4), 2), repeated(torch.ones(4), 5)
    save(repeated, tmp_path / "model", trainable=False)
    static = load(tmp_path / "model")
    assert static(np.ones(7, np.float32), 11).tolist() == [11.0] * 7


@pytest.mark.torch
def test_the_names_are_there_without_a_framework_imported() -> None:
    assert {"save", "load", "StaticLayer", "StaticModelError"} <= set(hybrid_infer.__all__)
    assert hybrid_infer.StaticLayer.__name__ == "StaticLayer"
    with pytest.raises(AttributeError):
        _ = hybrid_infer.nothing


@pytest.mark.parametrize("framework", BOTH)
def test_dimensions_are_named_after_the_arguments_that_they_come_from(framework: str, tmp_path: Path) -> None:
    own = kit(framework)

    class Joined(own.Layer):  # type: ignore[misc]
        def forward(self, x: Any, pair: Any) -> Any:
            joined = own.module.concat([x, pair[0]], 0) if framework == "paddle" else own.module.cat([x, pair[0]])
            return joined + pair[1]

    spec = [InputSpec([None, 4]), [InputSpec([None, 4]), InputSpec([1, 4], name="added")]]
    save(Joined(), tmp_path / "model", spec, trainable=False)
    load(tmp_path / "model").export_onnx(str(tmp_path / "model.onnx"))
    import onnx

    graph = onnx.load(str(tmp_path / "model.onnx")).graph
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    result = "pair_0_0 + x_0" if framework == "torch" else "output_0"
    assert shapes.pop("output") in ([result, 4], ["x_0 + pair_0_0", 4])
    assert shapes == {"x": ["x_0", 4], "pair_0": ["pair_0_0", 4], "added": [1, 4]}


@pytest.mark.torch
def test_dimensions_of_other_peoples_files_keep_their_names(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])], "g", [value("x", TensorProto.FLOAT, ["rows", 2])],
        [value("y", TensorProto.FLOAT, ["rows", 2])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    load(tmp_path / "m.onnx").export_onnx(str(tmp_path / "again.onnx"))
    import onnx

    found = onnx.load(str(tmp_path / "again.onnx")).graph
    assert found.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"

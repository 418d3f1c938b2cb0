"""Static models that others wrote: Paddle's in both forms, ONNX of both exporters, programs of torch.export."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from static_support import close, kit, points

from hybrid_infer import InputSpec, StaticModelError, load, save


@pytest.fixture(scope="module")
def torch_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    torch = pytest.importorskip("torch")
    folder, own = tmp_path_factory.mktemp("torch"), kit("torch")
    layer = own.Deep().eval()
    x, dynamic = (torch.randn(3, 8),), {0: torch.export.Dim.AUTO}
    axes = {"input.1": {0: "n"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters, about themselves
        exported = torch.export.export(layer, x, dynamic_shapes=(dynamic,), strict=False)
        torch.export.save(exported, folder / "model.pt2")
        new = {"dynamo": True, "external_data": True, "input_names": ["x"], "verbose": False}
        torch.onnx.export(exported, (), folder / "new.onnx", **new)
        torch.onnx.export(layer, x, folder / "old.onnx", dynamo=False, input_names=["input.1"], dynamic_axes=axes)
    return layer, folder


@pytest.fixture(scope="module")
def paddle_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    paddle = pytest.importorskip("paddle")
    folder, own = tmp_path_factory.mktemp("paddle"), kit("paddle")

    class Plain(own.Layer):  # type: ignore[misc]  # whose methods' first parameter is found by the framework's parser
        def __init__(self) -> None:
            super().__init__()
            self.first = own.Linear(8, 4)
            self.norm = own.Norm(4)

        def forward(self, x: Any) -> Any:
            return self.norm(self.first(x))

    layer = Plain()
    layer.eval()
    spec = [paddle.static.InputSpec([None, 8], "float32", "x")]
    paddle.jit.save(layer, str(folder / "new"), input_spec=spec)
    with paddle.pir_utils.OldIrGuard():
        paddle.jit.save(layer, str(folder / "old"), input_spec=spec)
    return layer, folder


def _agrees(own: Any, layer: Any, static: Any) -> None:
    for batch in (1, 5):
        x = points(batch)
        with own.no_grad():
            expected = own.array(layer(own.tensor(x)))
        close(static(x), expected)
        close(own.array(static(own.tensor(x))), expected)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["model.pt2", "new.onnx", "old.onnx"])
def test_what_torch_wrote(torch_files: tuple[Any, Path], tmp_path: Path, name: str) -> None:
    layer, folder = torch_files
    own = kit("torch")
    static = load(folder / name)
    _agrees(own, layer, static)
    assert static.input_spec[0].shape == (-1, 8)
    state = static.state_dict("torch")
    assert {"last.weight", "last.bias"} <= set(state)
    if name == "model.pt2":  # ONNX's exporters fold the statistics into the weights before them
        assert set(state) == set(layer.state_dict())
        assert all(np.array_equal(state[k], v) for k, v in layer.state_dict().items())
    with pytest.raises(StaticModelError, match="program"):
        static.as_layer()
    save(static, tmp_path / "again")
    again = load(tmp_path / "again")
    _agrees(own, layer, again)
    again.set_state_dict({k: v * 0 for k, v in again.state_dict("numpy").items()})
    assert not again(points(2)).any()


@pytest.mark.paddle
@pytest.mark.parametrize("name", ["new", "new.json", "old", "old.pdmodel"])
def test_what_paddle_wrote(
    paddle_files: tuple[Any, Path], tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    layer, folder = paddle_files
    own = kit("paddle")
    with caplog.at_level("WARNING", "hybrid_infer"):
        static = load(folder / name)
    assert not caplog.records  # it was compared with what Paddle computes
    _agrees(own, layer, static)
    assert static.input_spec == [InputSpec([-1, 8], "float32", "x")]
    if name == "new":
        assert len(static.state_dict()) >= 4
        save(static, tmp_path / "again")
        _agrees(own, layer, load(tmp_path / "again"))


@pytest.mark.paddle
def test_what_the_converter_gets_wrong_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It overlooks that channels come last: only Paddle's own result tells."""
    paddle = pytest.importorskip("paddle")
    own = kit("paddle")

    class Last(own.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm = paddle.nn.GroupNorm(2, 4, data_format="NHWC")

        def forward(self, x: Any) -> Any:
            return self.norm(x)

    layer = Last()
    layer.eval()
    spec = [paddle.static.InputSpec([None, 4, 4, 4], "float32", "x")]
    paddle.jit.save(layer, str(tmp_path / "last"), input_spec=spec)
    x = points(3, 64).reshape(3, 4, 4, 4)
    try:
        found = load(tmp_path / "last")(x)
    except StaticModelError as fault:
        assert "faithfully" in str(fault) or "paddle2onnx" in str(fault)
    else:
        with own.no_grad():
            close(found, own.array(layer(own.tensor(x))), 1e-4)
        assert "could not be compared" not in caplog.text


@pytest.mark.paddle
def test_paddle_files_that_are_damaged(paddle_files: tuple[Any, Path], tmp_path: Path) -> None:
    _, folder = paddle_files
    shutil.copy(folder / "new.json", tmp_path / "alone.json")
    with pytest.raises(StaticModelError, match=r"alone\.pdiparams"):
        load(tmp_path / "alone")
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "bad.pdiparams").write_bytes(b"x")
    with pytest.raises(StaticModelError, match="paddle2onnx"):
        load(tmp_path / "bad.json")


@pytest.mark.torch
@pytest.mark.parametrize("name", ["model.pt2", "new.onnx", "old.onnx"])
def test_a_truncated_file(torch_files: tuple[Any, Path], tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes((torch_files[1] / name).read_bytes()[:300])
    with pytest.raises(StaticModelError, match=name):
        load(path)


def _model(location: str, **extra: str) -> Any:
    """``y = x + w`` whose weight lies in another file."""
    import onnx
    from onnx import TensorProto, helper

    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **extra}.items():
        weight.external_data.append(onnx.StringStringEntryProto(key=key, value=value))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", [value("x", TensorProto.FLOAT, ["n", 2])],
        [value("y", TensorProto.FLOAT, ["n", 2])], [weight],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_data_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    np.float32([9, 1, 2]).tofile(tmp_path / "deep" / "data.bin")
    (tmp_path / "m.onnx").write_bytes(_model("deep/data.bin", offset="4", length="8").SerializeToString())
    assert load(tmp_path / "m.onnx")(np.zeros((1, 2), np.float32)).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("location", "extra", "words"),
    [
        ("../data.bin", {}, "outside"),
        ("a/../../data.bin", {}, "outside"),
        ("/etc/hostname", {}, "outside"),
        ("..\\data.bin", {}, "outside"),
        ("C:data.bin", {}, "outside"),
        ("", {}, "outside"),
        ("link.bin", {}, "link"),
        ("linked/data.bin", {}, "link"),
        ("nothing.bin", {}, "cannot be read"),
        ("data.bin", {"length": "800"}, "truncated"),
        ("data.bin", {"offset": "4"}, "shape"),
        ("data.bin", {"offset": "x"}, "numbers"),
        ("data.bin", {"offset": "-4", "length": "8"}, "truncated"),
    ],
)
def test_data_that_leads_elsewhere(tmp_path: Path, location: str, extra: dict[str, str], words: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for path in (tmp_path / "data.bin", folder / "data.bin"):
        np.float32([1, 2]).tofile(path)
    os.symlink(tmp_path / "data.bin", folder / "link.bin")
    os.symlink(tmp_path, folder / "linked")
    (folder / "m.onnx").write_bytes(_model(location, **extra).SerializeToString())
    with pytest.raises(StaticModelError, match=words):
        load(folder / "m.onnx")


def test_onnx_files_that_are_none_or_are_not_served(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    path = tmp_path / "m.onnx"
    for data in (b"", b"text", b"\x00" * 64):
        path.write_bytes(data)
        with pytest.raises(StaticModelError, match="not an ONNX model"):
            load(path)
    value = helper.make_tensor_value_info
    node = helper.make_node("Nonsense", ["x"], ["y"])
    for given, words in ((TensorProto.STRING, "element type"), (TensorProto.FLOAT, "no engine")):
        graph = helper.make_graph([node], "g", [value("x", given, [2])], [value("y", TensorProto.FLOAT, [2])])
        onnx.save(helper.make_model(graph), path)
        with pytest.raises(StaticModelError, match=words):
            load(path)(np.zeros(2, np.float32))


def test_inputs_of_onnx_files_by_position_and_by_name(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Sub", ["a.0", "b"], ["d"]), helper.make_node("Neg", ["b"], ["e"])], "g",
        [value("a.0", TensorProto.FLOAT, ["n"]), value("b", TensorProto.FLOAT, ["n"])],
        [value("d", TensorProto.FLOAT, ["n"]), value("e", TensorProto.FLOAT, ["n"])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    static = load(tmp_path / "m.onnx")
    one, two = np.float32([3]), np.float32([1])
    assert [found.tolist() for found in static(one, two)] == [[2], [-1]]
    assert static(b=two, a_0=one)[0].tolist() == [2]

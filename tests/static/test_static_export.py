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
from hybrid_infer import InputSpec, _record, _static, cli, inference, load, save


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

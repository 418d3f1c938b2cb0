"""The exporter's table of forms, which is made once in a process."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from onnxscript import values  # noqa: E402
from torch.onnx._internal.exporter import _registration  # noqa: E402

from hybrid_infer.frontends import _torch_registry  # noqa: E402

pytestmark = pytest.mark.torch


def content(table: Any) -> Any:
    told = ("onnx_function", "fx_target", "signature", "is_custom", "is_complex", "opset_introduced")
    return {name: [[getattr(form, each) for each in told] for form in forms] for name, forms in table.functions.items()}


def test_the_same_table_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = _registration.ONNXRegistry
    expected = kind.from_torchlib(opset_version=20)
    monkeypatch.setattr(_torch_registry, "_made", {})
    made: list[int] = []
    ops = _registration.onnxscript_apis.get_torchlib_ops
    monkeypatch.setattr(_registration.onnxscript_apis, "get_torchlib_ops", lambda: made.append(1) or ops())
    before = vars(kind)["from_torchlib"], vars(values.TracedOnnxFunction)["function_ir"]
    for _ in range(3):
        with _torch_registry.once():
            found = kind().from_torchlib(opset_version=20)
            assert found.opset_version == 20 and content(found) == content(expected)
            found.register_op(torch.ops.aten.add.Tensor, lambda x, y: x)  # which is seen in no other
    assert made == [1]
    assert (vars(kind)["from_torchlib"], vars(values.TracedOnnxFunction)["function_ir"]) == before


def test_the_signature_of_a_form_that_is_added_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_torch_registry, "_added", {})
    read: list[Any] = []
    signature = _registration._schemas.op_signature_from_function
    monkeypatch.setattr(
        _registration._schemas, "op_signature_from_function",
        lambda function, *args, **kwargs: read.append(function) or signature(function, *args, **kwargs),
    )  # fmt: skip
    kind, add = _registration.ONNXRegistry, torch.ops.aten.add.Tensor
    _torch_registry._made.pop(20, None)
    with _torch_registry.once():
        kind.from_torchlib(opset_version=20)
    first, second = (lambda x, y: x), (lambda x, y, more: y)
    expected = []
    for form in (first, first, second, first):
        plain = kind()
        plain.register_op(add, form)
        plain.register_op(math.floor, form)
        expected.append(content(plain))
    read.clear()
    for form, wanted in zip((first, first, second, first), expected, strict=True):
        with _torch_registry.once():
            found = kind.from_torchlib(opset_version=20)
        before = {name: len(forms) for name, forms in found.functions.items()}
        found.register_op(add, form)
        found.register_op(math.floor, form)
        for name in (add.name(), math.floor):
            assert len(found.functions[name]) == before.get(name, 0) + 1
            found.functions[name] = found.functions[name][:1]
        assert {name: content(found)[name] for name in wanted} == wanted
    assert read == [first, first, second, second, first, first]


def test_other_threads_make_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    own = object()
    monkeypatch.setattr(_torch_registry, "_made", {18: own})
    with _torch_registry.once():
        thread = threading.Thread(target=lambda: found.append(_registration.ONNXRegistry.from_torchlib(18)))
        thread.start()
        thread.join()
    assert type(found[0]) is _registration.ONNXRegistry


def test_a_process_that_was_forked_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_torch_registry, "_made", {})
    there = _torch_registry.once()
    thread = threading.Thread(target=there.__enter__)  # which the child does not have
    thread.start()
    thread.join()
    try:
        with _torch_registry.once():
            found = _registration.ONNXRegistry.from_torchlib(20)
        assert type(found) is _registration.ONNXRegistry and found.functions
    finally:
        there.__exit__(None, None, None)

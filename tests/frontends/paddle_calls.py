"""A prepared Paddle call, and the comparison of its graph with the eager method."""

from __future__ import annotations

import contextlib
import copy

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")
onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from hybrid_infer._guards import holds  # noqa: E402
from hybrid_infer.frontends.paddle import FRONTEND  # noqa: E402


def slots(owner, found, seen):
    """(container, key, tensor) of everything that a layer holds."""
    if id(owner) in seen:
        return found
    seen.add(id(owner))
    boxes = [owner] if isinstance(owner, (dict, list)) else []
    if isinstance(owner, paddle.nn.Layer):
        boxes = [vars(owner)]
    for box in boxes:
        for key, value in list(enumerate(box) if isinstance(box, list) else box.items()):
            if isinstance(value, paddle.Tensor):
                found.append((box, key, value))
            elif isinstance(value, (dict, list, paddle.nn.Layer)):
                slots(value, found, seen)
    return found


class Call:
    """A prepared call: a copy of the layer that shares its tensors, and traced tensors put into its slots."""

    name, any_size, asks_for_gradients, assuming = "Layer.method", False, False, False
    written, constants = frozenset(), ()

    def __init__(self, layer, *tensors, method="forward", ints=(), call=None):
        self.layer, self.tensors, self.ints = layer, list(tensors), list(ints)
        self.function = getattr(type(layer), method)
        live = slots(layer, [], set())
        memo = {id(t): t for *_, t in live}
        self.weights = list({id(t): t for *_, t in live}.values())
        self.labels = [f"weight {i}" for i in range(len(self.weights))] + [f"argument {i}" for i in range(len(tensors))]
        self.twin = copy.deepcopy(layer, memo)
        self.places = slots(self.twin, [], set())
        self.call = call or (lambda function, owner, tensors, ints: function(owner, *tensors, *ints))

    def run(self, weights, tensors, ints, convert=lambda function: function):
        traced = {id(t): w for t, w in zip(self.weights, weights, strict=True)}
        for box, key, tensor in self.places:
            box[key] = traced[id(tensor)]
        try:
            result = self.call(convert(self.function), self.twin, tensors, ints)
        finally:
            for box, key, tensor in self.places:
                box[key] = tensor
        return flat(result)

    def may_write(self, tensors, state):
        return False

    def since(self, functions):
        return self

    def changed(self):
        return None

    def noted(self):
        return None

    def recall(self, noted):
        """Nothing is kept of a run."""

    def rewritten(self, function, made):
        pass

    def observing(self, on):
        return contextlib.nullcontext()

    def eager(self, *tensors, ints=()):
        with paddle.no_grad():
            return flat(self.call(self.function, self.layer, list(tensors), list(ints)))


def flat(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in flat(part)]
    return [value]


def array(tensor):
    return tensor.astype("float32").numpy() if tensor.dtype == paddle.bfloat16 else tensor.numpy()


def without_bfloat16(model):
    """ONNX Runtime's kernels take no bfloat16: float32 everywhere, as its engine does it."""
    low, wide = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT
    for info in [*model.graph.input, *model.graph.output]:
        if info.type.tensor_type.elem_type == low:
            info.type.tensor_type.elem_type = wide
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == low:
                attribute.i = wide
    return model


def run(graph, weights, tensors, ints=()):
    model = onnx.load_from_string(graph.model)
    onnx.checker.check_model(model, full_check=True)
    names = [n for n in (*graph.weights, *graph.inputs) if n is not None]
    assert [v.name for v in model.graph.input] == names
    assert [v.name for v in model.graph.output] == list(graph.outputs)
    assert len({*names, *graph.outputs}) == len(names) + len(graph.outputs)
    assert max(o.version for o in model.opset_import) <= 20
    options = ort.SessionOptions()
    options.log_severity_level = 3
    model = without_bfloat16(model).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    values = [array(t) for t in (*weights, *tensors)] + [np.array(n, "int64") for n in ints]
    feeds = {n: v for n, v in zip((*graph.weights, *graph.inputs), values, strict=True) if n is not None}
    return session.run(list(graph.outputs), feeds)


def answers(captured, tensors, ints=()):
    """Do the conditions of a capture hold for a call?"""
    shapes = [tuple(tensor.shape) for tensor in tensors]
    return all(holds(condition, shapes, list(ints)) for condition in captured.conditions)


def check(call, *others, dynamic=(), ints=frozenset(), tolerance=2e-5):
    """Capture, then compare with eager at the example and at other inputs."""
    captured = FRONTEND.capture(call, frozenset(dynamic), frozenset(ints))
    assert captured.impure == ()
    for tensors in [call.tensors, *others] if call.tensors else [[]]:
        assert answers(captured, tensors, call.ints), captured.conditions
        expected = call.eager(*tensors, ints=call.ints)
        results = run(captured.graph, call.weights, tensors, call.ints)
        assert len(results) == len(expected)
        for given, wanted, spec in zip(results, expected, captured.graph.output_specs, strict=True):
            dtype, shape, _ = FRONTEND.describe(wanted)
            assert spec.dtype == dtype
            assert given.shape == shape
            assert len(spec.shape) == len(shape)
            assert all(n is None or n == m for n, m in zip(spec.shape, shape, strict=True))
            if dtype == "bfloat16":
                np.testing.assert_allclose(given, array(wanted), rtol=2e-2, atol=2e-2)
            else:
                assert given.dtype == array(wanted).dtype
                np.testing.assert_allclose(given, array(wanted), rtol=1e-4, atol=tolerance)
    return captured


def layer(function, **held):
    """A layer whose forward is `function` and which holds the given tensors, layers and lists."""

    made = type("Made", (paddle.nn.Layer,), {"forward": function})()
    for name, value in held.items():
        setattr(made, name, value)
    made.eval()
    return made

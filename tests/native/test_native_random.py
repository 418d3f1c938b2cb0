"""Random graphs: the fused plan gives what the unfused one and ONNX's reference give, and its memory never overlaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native_support import check_memory, model, node, reference, run_and_check_shapes, sample

from hybrid_infer.backends.native import _interpret, _passes, _read, _size

#: Elementwise operators that keep values small, so that errors do not grow from step to step.
UNARY = ("Tanh", "Sigmoid", "Neg", "Abs", "Relu", "Sin", "Erf", "Identity", "Softsign", "HardSigmoid")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
WIDTH = 6


class Builder:
    """Grows a graph node by node; each value has a kind: what its shape is."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw, self.nodes, self.constants = draw, [], {}
        self.inputs: dict[str, Any] = {
            "x0": ("float32", ("b", "t", WIDTH)), "x1": ("float32", ("b", "t", WIDTH)),
            "row": ("float32", (WIDTH,)), "spread": ("float32", ("b", 1, WIDTH)),
            "w": ("float32", (WIDTH, WIDTH)),
        }  # fmt: skip
        self.full, self.small, self.flat = ["x0", "x1"], ["row", "spread"], []

    def name(self) -> str:
        return f"v{len(self.nodes)}"

    def add(self, op: str, inputs: list[str], **attributes: Any) -> str:
        name = self.name()
        self.nodes.append(node(op, inputs, [name], **attributes))
        return name

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def pick(self, names: list[str]) -> str:
        return self.draw(st.sampled_from(names))

    def grow(self) -> None:
        x = self.pick(self.full)
        kind = self.draw(st.sampled_from(
            ["unary", "unary", "binary", "binary", "binary", "small", "norm", "rms", "softmax", "matmul", "linear",
             "turn", "flat", "number", "where", "split", "mean", "parts", "heads", "band",
             "first", "tail", "spread"]
        ))  # fmt: skip
        if kind == "unary":
            self.full.append(self.add(self.draw(st.sampled_from(UNARY)), [x]))
        elif kind == "binary":
            other = self.pick([*self.full, *self.small])
            pair = [x, other] if self.draw(st.booleans()) else [other, x]
            self.full.append(self.add("Tanh", [self.add(self.draw(st.sampled_from(BINARY)), pair)]))
        elif kind == "small":
            self.small.append(self.add("Tanh", [self.add("Add", [self.pick(self.small), self.pick(self.small)])]))
        elif kind == "norm":
            self.full.append(self.add("LayerNormalization", [x, "row", "row"], axis=-1))
        elif kind == "rms":
            mean = self.add("ReduceMean", [self.add("Mul", [x, x]), self.constant(np.array([-1], np.int64))])
            root = self.add("Sqrt", [self.add("Add", [mean, self.constant(np.float32(1e-2))])])
            self.full.append(self.add("Div", [x, root]))
        elif kind == "softmax":
            self.full.append(self.add("Softmax", [x], axis=-1))
        elif kind == "matmul":
            left = self.add("MatMul", [x, self.add("Transpose", [self.pick(self.full)], perm=[0, 2, 1])])
            weights = self.add("Softmax", [self.add("Mul", [left, self.constant(np.float32(0.3))])], axis=-1)
            self.full.append(self.add("MatMul", [weights, self.pick(self.full)]))
        elif kind == "linear":
            product = self.add("MatMul", [x, self.add("Transpose", ["w"], perm=[1, 0])])
            total = self.add("Add", [product, self.pick(["row", *self.full])])
            self.full.append(self.add(self.draw(st.sampled_from(["Tanh", "Relu", "Sigmoid"])), [total]))
        elif kind == "turn":
            turned = self.add("Tanh", [self.add("Transpose", [x], perm=[1, 0, 2])])
            self.full.append(self.add("Transpose", [turned], perm=[1, 0, 2]))
        elif kind == "flat":
            flat = self.add("Reshape", [x, self.constant(np.array([-1, WIDTH], np.int64))])
            self.flat.append(self.add(self.draw(st.sampled_from(UNARY)), [flat]))
            back = self.add("Shape", [x])
            self.full.append(self.add("Reshape", [self.pick(self.flat), back]))
        elif kind == "number":
            self.full.append(self.add(self.draw(st.sampled_from(BINARY)), [x, self.constant(np.float32(0.5))]))
        elif kind == "where":
            test = self.add("Greater", [x, self.pick(self.small)])
            self.full.append(self.add("Where", [test, x, self.pick(self.full)]))
        elif kind == "mean":
            mean = self.add("ReduceMean", [x, self.constant(np.array([1], np.int64))])
            self.small.append(mean)
        elif kind == "parts":
            name = self.name()
            self.nodes.append(node("Split", [x], [f"{name}a", f"{name}b", f"{name}c"], axis=2, num_outputs=3))
            product = self.add("Mul", [f"{name}a", f"{name}{self.pick(['b', 'c'])}"])
            self.full.append(self.add("Concat", [product, self.add("Tanh", [f"{name}c"]), f"{name}b"], axis=2))
        elif kind == "heads":
            apart = self.add("Reshape", [x, self.constant(np.array([0, 0, 3, 2], np.int64))])
            turned = self.add("Transpose", [apart], perm=[0, 2, 1, 3])
            done = self.add(self.draw(st.sampled_from(["Tanh", "Softmax"])), [turned])
            back = self.add("Transpose", [done], perm=[0, 2, 1, 3])
            self.full.append(self.add("Reshape", [back, self.constant(np.array([0, 0, WIDTH], np.int64))]))
        elif kind == "first":
            numbers = [self.constant(np.array([n], np.int64)) for n in (0, 1, 0)]
            self.small.append(self.add("Tanh", [self.add("Slice", [x, *numbers])]))
        elif kind == "tail":
            numbers = [self.constant(np.array([n], np.int64)) for n in (-2, 2**62, 1)]
            tail = self.add("Sigmoid", [self.add("Slice", [x, *numbers])])
            self.small.append(self.add("ReduceMean", [tail, self.constant(np.array([1], np.int64))]))
        elif kind == "spread":
            wide = self.add("Expand", [self.pick(self.small), self.add("Shape", [x])])
            self.full.append(self.add("Mul", [self.add("Tanh", [wide]), x]))
        elif kind == "band":
            first, axis = self.constant(np.array([2], np.int64)), self.constant(np.array([2], np.int64))
            band = self.add("Slice", [x, first, self.constant(np.array([4], np.int64)), axis])
            self.full.append(self.add("Concat", [self.add("Sigmoid", [band])] * 3, axis=2))
        else:
            name = self.name()
            self.nodes.append(node("Split", [x], [f"{name}a", f"{name}b"], axis=2, num_outputs=2))
            self.full.append(self.add("Concat", [f"{name}b", f"{name}a"], axis=2))


@st.composite
def graphs(draw: Callable[..., Any]) -> Any:
    builder = Builder(draw)
    for _ in range(draw(st.integers(1, 12))):
        builder.grow()
    made = st.sampled_from(builder.full[2:] or builder.small[2:])
    outputs = draw(st.lists(made, min_size=1, max_size=3, unique=True))
    return model(builder.nodes, builder.inputs, outputs, builder.constants)


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck), derandomize=True)
@given(graphs(), st.integers(1, 3), st.integers(1, 4))
def test_a_random_graph_is_computed_alike_fused_and_unfused(made: Any, batch: int, tokens: int) -> None:
    shapes = {"x0": (batch, tokens, WIDTH), "x1": (batch, tokens, WIDTH), "row": (WIDTH,),
              "spread": (batch, 1, WIDTH), "w": (WIDTH, WIDTH)}  # fmt: skip
    feeds = {name: sample(shape, i) for i, (name, shape) in enumerate(shapes.items())}
    expected = reference(made, feeds)
    plans = [_passes.plan(made, without=left_out) for left_out in ((), tuple(_passes.PASSES))]
    for plan in plans:
        for found in (_interpret.run(plan, feeds), run_and_check_shapes(plan, feeds)):
            for ours, theirs in zip(found, expected, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck), derandomize=True)
@given(graphs(), st.integers(0, 300), st.integers(0, 500))
def test_the_memory_of_a_random_graph_never_overlaps(made: Any, batch: int, tokens: int) -> None:
    plan = _passes.plan(made)
    feeds = {name: np.empty([{"b": batch, "t": tokens}.get(n, n) for n in shape], np.float32)
             for name, shape in zip(plan.inputs, [(s.dim_param or s.dim_value for s in v.type.tensor_type.shape.dim)
                                                  for v in made.graph.input], strict=True)}  # fmt: skip
    check_memory(plan, _read.symbols_of(plan, feeds))


def _combine(parts: tuple[str, Any, Any]) -> Any:
    op, a, b = parts
    if op in ("//", "%"):
        b = _size.largest(b, 1)
        return a // b if op == "//" else a % b
    return {
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b,
        "max": lambda: _size.largest(a, b), "min": lambda: _size.smallest(a, b),
    }[op]()  # fmt: skip


symbols = st.sampled_from([_size.atom("dim", "x", 0), _size.atom("dim", "x", 1), _size.atom("dim", "y", 0)])
sizes = st.recursive(
    st.integers(0, 9) | symbols,
    lambda inner: st.tuples(st.sampled_from(["+", "-", "*", "//", "%", "max", "min"]), inner, inner).map(_combine),
    max_leaves=8,
)


@settings(deadline=None)
@given(sizes, sizes, st.integers(1, 50), st.integers(1, 50), st.integers(1, 50))
def test_sizes_compute_as_integers_do(a: Any, b: Any, m: int, n: int, k: int) -> None:
    at = {("dim", "x", 0): m, ("dim", "x", 1): n, ("dim", "y", 0): k}
    left, right = _size.evaluate(a, at), _size.evaluate(b, at)
    assert _size.evaluate(a + b, at) == left + right
    assert _size.evaluate(a - b, at) == left - right
    assert _size.evaluate(a * b, at) == left * right
    assert _size.evaluate(_size.largest(a, b), at) == max(left, right)
    assert _size.evaluate(_size.smallest(a, b), at) == min(left, right)
    assert left >= 0 or not _size.never_negative(a)
    if right:
        assert _size.evaluate(a * b // b, at) == left
    if right:
        assert _size.evaluate(a // b, at) == left // right
        assert _size.evaluate(a % b, at) == left % right
    assert _size.evaluate(_size.from_json(_size.to_json(a)), at) == left
    assert (a + b) - b == a

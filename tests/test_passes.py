"""Each pass on small graphs: what it changes, what it leaves, and that the graph computes what it did."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from hybrid_infer._errors import EngineError
from hybrid_infer._types import Graph, TensorSpec
from hybrid_infer.passes import NAMES, chosen, run

np = pytest.importorskip("numpy")
onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

node = helper.make_node
Spec = tuple[int, tuple[Any, ...]]
F32, F64, I64, I32 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT32


def graph(
    nodes: Sequence[Any], weights: Mapping[str, Spec], inputs: Mapping[str, Spec], outputs: Mapping[str, Spec],
    **constants: Any,
) -> Graph:  # fmt: skip
    def values(specs: Mapping[str, Spec]) -> list[Any]:
        return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in specs.items()]

    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    body = helper.make_graph(list(nodes), "test", values({**weights, **inputs}), values(outputs), tensors)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model)
    spec = TensorSpec("float32", ())
    return Graph(
        model.SerializeToString(), tuple(weights), tuple(inputs), tuple(outputs), (spec,) * len(inputs),
        (spec,) * len(outputs),
    )  # fmt: skip


def parts(found: Graph) -> Any:
    model = onnx.ModelProto.FromString(found.model)
    onnx.checker.check_model(model)
    return model.graph


def operators(found: Graph) -> list[str]:
    return [each.op_type for each in parts(found).node]


def compute(found: Graph, feeds: Mapping[str, Any]) -> list[Any]:
    names = {value.name for value in parts(found).input}
    given = {name: value for name, value in feeds.items() if name in names}
    return list(ReferenceEvaluator(onnx.ModelProto.FromString(found.model)).run(None, given))


def same(one: Graph, other: Graph, **feeds: Any) -> None:
    for left, right in zip(compute(one, feeds), compute(other, feeds), strict=True):
        np.testing.assert_array_equal(left, right)


X = np.linspace(-2, 2, 6, dtype="float32").reshape(2, 3)


# The manager


def test_the_passes_that_run_and_their_order() -> None:
    assert chosen(optimise=True, without=(), precision="float32") == NAMES[:-1]
    assert chosen(optimise=True, without=(), precision="float16") == NAMES
    assert chosen(optimise=True, without=("prune", "not_ours"), precision="float32") == ("identity", "fold")
    # What another option demands is no optimisation.
    assert chosen(optimise=False, without=(), precision="bfloat16") == ("precision",)
    assert chosen(optimise=False, without=("precision",), precision="bfloat16") == ()


def test_the_graph_is_seen_before_the_passes_and_after_each() -> None:
    spec = (F32, (2,))
    given = graph([node("Identity", ["x"], ["a"]), node("Neg", ["a"], ["y"])], {}, {"x": spec}, {"y": spec})
    seen: list[tuple[str, bytes]] = []
    found = run(given, NAMES[:-1], observe=lambda name, model: seen.append((name, model)))
    assert [name for name, _ in seen] == ["captured", *NAMES[:-1]]
    assert seen[0][1] == given.model and seen[-1][1] == found.model
    assert len(seen[1][1]) < len(given.model)


def test_a_graph_in_which_nothing_is_to_be_done_is_handed_on_as_it_is() -> None:
    given = graph([node("Neg", ["x"], ["y"])], {}, {"x": (F32, (2,))}, {"y": (F32, (2,))})
    assert run(given, NAMES, precision="bfloat16") is given


def _fails(model: Any) -> int:
    raise KeyError("shape")


def _adds(model: Any) -> int:
    model.graph.input.append(helper.make_tensor_value_info("more", F32, [1]))
    return 1


def _drops(model: Any) -> int:
    del model.graph.output[:]
    return 1


@pytest.mark.parametrize(
    ("broken", "words"),
    [(_fails, "pass prune: it failed: KeyError"), (_adds, r"added the inputs \['more'\]"), (_drops, "the outputs")],
)
def test_a_pass_that_breaks_its_contract_is_named(
    broken: Callable[[Any], int], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("hybrid_infer.passes.prune")
    module.prune = broken  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hybrid_infer.passes.prune", module)
    given = graph([node("Neg", ["x"], ["y"])], {}, {"x": (F32, (2,))}, {"y": (F32, (2,))})
    with pytest.raises(EngineError, match=words):
        run(given, ["prune"])


# Prune


def test_prune_drops_what_no_result_needs() -> None:
    given = graph(
        [node("Mul", ["x", "dead"], ["a"]), node("Neg", ["a"], ["b"]), node("Add", ["x", "w"], ["y"])],
        {"dead": (F32, (3,)), "w": (F32, (3,))}, {"unread": (I64, ()), "x": (F32, (2, 3))}, {"y": (F32, (2, 3))},
        constant=np.ones(2, "float32"),
    )  # fmt: skip
    found = run(given, ["prune"])
    assert operators(found) == ["Add"]
    assert (found.weights, found.inputs) == ((None, "w"), (None, "x"))
    assert not parts(found).initializer
    same(given, found, x=X, w=X[0], dead=X[0], unread=np.int64(1))


def branches() -> tuple[Any, Any]:
    """Bodies that read ``a`` and ``w`` of the graph around them."""
    y, z = (helper.make_tensor_value_info(name, F32, [2, 3]) for name in "yz")
    return (
        helper.make_graph([node("Identity", ["a"], ["i"]), node("Mul", ["i", "w"], ["y"])], "then", [], [y]),
        helper.make_graph([node("Identity", ["a"], ["z"])], "else", [], [z]),
    )


def nested() -> Graph:
    then_branch, else_branch = branches()
    return graph(
        [node("Identity", ["x"], ["a"]), node("If", ["c"], ["r"], then_branch=then_branch, else_branch=else_branch)],
        {"w": (F32, (3,))}, {"x": (F32, (2, 3)), "c": (TensorProto.BOOL, ())}, {"r": (F32, (2, 3))},
    )  # fmt: skip


def test_prune_keeps_what_a_nested_graph_reads() -> None:
    found = run(nested(), ["prune"])
    assert operators(found) == ["Identity", "If"] and found.weights == ("w",)


def test_prune_keeps_an_input_that_is_a_result() -> None:
    given = graph([node("Neg", ["x"], ["n"])], {}, {"x": (F32, (2,))}, {"x": (F32, (2,))})
    found = run(given, ["prune"])
    assert operators(found) == [] and found.inputs == ("x",)


# Identity


def test_identity_drops_what_hands_its_input_on() -> None:
    given = graph(
        [
            node("Identity", ["x"], ["a"]),
            node("Cast", ["a"], ["b"], to=F32),
            node("Transpose", ["b"], ["c"], perm=[0, 1]),
            node("Transpose", ["c"], ["d"], perm=[1, 0]),
            node("Cast", ["d"], ["e"], to=F64),
            node("Identity", ["e"], ["y"]),
        ],
        {}, {"x": (F32, (2, 3))}, {"y": (F64, (3, 2))},
    )  # fmt: skip
    found = run(given, ["identity"])
    assert operators(found) == ["Transpose", "Cast", "Identity"]  # the last one names the result
    same(given, found, x=X)


def test_identity_looks_into_nested_graphs() -> None:
    found = run(nested(), ["identity"])
    assert operators(found) == ["If"]
    inner = {a.name: [each.op_type for each in a.g.node] for a in parts(found).node[0].attribute}
    assert inner == {"then_branch": ["Mul"], "else_branch": ["Identity"]}
    for condition in (True, False):
        same(nested(), found, x=X, w=X[0], c=np.array(condition))


def test_identity_keeps_a_cast_of_a_type_that_is_not_known() -> None:
    model = helper.make_model(
        helper.make_graph(
            [node("Odd", ["x"], ["a"], domain="ours"), node("Cast", ["a"], ["y"], to=F32)], "g",
            [helper.make_tensor_value_info("x", F32, [2])], [helper.make_tensor_value_info("y", F32, [2])],
        ),
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("ours", 1)],
    )  # fmt: skip
    odd = Graph(model.SerializeToString(), (), ("x",), ("y",), (), ())
    assert run(odd, ["identity"]) is odd


# Fold


def test_fold_computes_shapes_that_were_spelled_as_arithmetic() -> None:
    given = graph(
        [
            node("Constant", [], ["k"], value=numpy_helper.from_array(np.int64(3))),
            node("Unsqueeze", ["k", "axis"], ["u"]),
            node("Concat", ["u", "u", "minus"], ["shape"], axis=0),
            node("Slice", ["shape", "one", "three"], ["tail"]),
            node("Reshape", ["x", "tail"], ["y"]),
        ],
        {}, {"x": (F32, (2, 3))}, {"y": (F32, (3, 2))},
        axis=np.array([0]), minus=np.array([-1]), one=np.array([1]), three=np.array([3]),
    )  # fmt: skip
    found = run(given, ["fold", "prune"])
    assert operators(found) == ["Reshape"]
    (tensor,) = parts(found).initializer
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), [3, -1])
    same(given, found, x=X)


def test_fold_does_not_bloat_the_graph() -> None:
    given = graph(
        [
            node("Expand", ["zero", "shape"], ["large"]),
            node("ConstantOfShape", ["shape"], ["larger"]),
            node("Range", ["start", "many", "step"], ["long"]),
            node("Cast", ["long"], ["floats"], to=F32),
            node("Add", ["x", "large"], ["a"]),
            node("Add", ["a", "larger"], ["b"]),
            node("Add", ["b", "floats"], ["y"]),
        ],
        {}, {"x": (F32, (1,))}, {"y": (F32, (1000, 1000))},
        zero=np.zeros(1, "float32"), shape=np.array([1000, 1000]), start=np.int64(0), many=np.int64(1000),
        step=np.int64(1),
    )  # fmt: skip
    assert run(given, ["fold"]) is given


@pytest.mark.parametrize(
    "last",
    [
        node("Gather", ["table", "w"], ["y"]),  # a weight is no constant
        node("Gather", ["table", "far"], ["y"]),  # to be reported when it is computed, if it ever is
        node("Cast", ["huge"], ["y"], to=I64),  # every engine has its own result
        node("Div", ["minus", "table"], ["y"]),  # the reference rounds down where engines cut off
    ],
    ids=lambda each: f"{each.op_type}-{each.input[-1]}",
)
def test_fold_leaves_what_it_cannot_know(last: Any) -> None:
    given = graph(
        [last, node("Size", ["y"], ["n"]), node("Add", ["n", "w"], ["z"])], {"w": (I64, ())}, {}, {"z": (I64, ())},
        table=np.array([1, 2, 3]), far=np.int64(9), huge=np.float32([1e30, np.nan]), minus=np.int64(-7),
    )  # fmt: skip
    assert "y" not in {tensor.name for tensor in parts(run(given, ["fold"])).initializer}
    assert operators(run(given, ["fold"]))[0] == last.op_type


# Precision


def casts(found: Graph) -> list[str]:
    return [name for each in parts(found).node if each.op_type == "Cast" for name in each.input]


@pytest.mark.parametrize(("kind", "count"), [("bfloat16", 2), ("float16", 4)])
def test_precision_rounds_each_operand_of_products_once(kind: str, count: int) -> None:
    given = graph(
        [
            node("LayerNormalization", ["x", "w"], ["n"]),
            node("MatMul", ["n", "q"], ["a"]),
            node("MatMul", ["n", "k"], ["b"]),
            node("Gemm", ["a", "b", "bias"], ["s"], transB=1),
            node("Softmax", ["s"], ["p"]),
            node("ReduceSum", ["p"], ["y"]),
        ],
        {"w": (F32, (3,)), "q": (F32, (3, 3)), "k": (F32, (3, 3)), "bias": (F32, ())}, {"x": (F32, (2, 3))},
        {"y": (F32, (1, 1))},
    )  # fmt: skip
    found = run(given, ["precision"], precision=kind)
    rounded = [name for name in casts(found) if "::" not in name]
    assert rounded == ["n", "q", "k", "a", "b"]
    kept = [each for each in parts(found).node if each.op_type in ("LayerNormalization", "Softmax", "ReduceSum")]
    assert [list(each.input) for each in kept] == [["x", "w"], ["s"], ["p"]]
    assert len(parts(found).node) == 6 + 5 * count
    assert (found.weights, found.inputs) == (given.weights, given.inputs)


def test_precision_leaves_products_of_other_types() -> None:
    given = graph(
        [node("MatMul", ["i", "i"], ["a"]), node("MatMul", ["d", "d"], ["b"]), node("Conv", ["h", "h"], ["c"])],
        {}, {"i": (I32, (2, 2)), "d": (F64, (2, 2)), "h": (TensorProto.FLOAT16, (1, 1, 2, 2))},
        {"a": (I32, (2, 2)), "b": (F64, (2, 2)), "c": (TensorProto.FLOAT16, (1, 1, 1, 1))},
    )  # fmt: skip
    assert run(given, ["precision"], precision="bfloat16") is given


def test_precision_looks_into_nested_graphs() -> None:
    y, z = (helper.make_tensor_value_info(name, F32, [2, 2]) for name in "yz")
    then_branch = helper.make_graph([node("MatMul", ["x", "w"], ["y"])], "then", [], [y])
    else_branch = helper.make_graph([node("MatMul", ["w", "x"], ["z"])], "else", [], [z])
    given = graph(
        [node("If", ["c"], ["r"], then_branch=then_branch, else_branch=else_branch), node("MatMul", ["r", "w"], ["s"])],
        {"w": (F32, (2, 2))}, {"x": (F32, (2, 2)), "c": (TensorProto.BOOL, ())}, {"s": (F32, (2, 2))},
    )  # fmt: skip
    found = run(given, ["precision"], precision="bfloat16")
    assert operators(found) == ["If", *["Cast"] * 4, "MatMul"]
    inner = [[each.op_type for each in a.g.node] for a in parts(found).node[0].attribute]
    assert inner == [[*["Cast"] * 4, "MatMul"]] * 2


def test_precision_reaches_the_functions_of_a_model() -> None:
    spec = (F32, (2, 2))
    plain = graph([node("Neg", ["x"], ["y"])], {"w": spec}, {"x": spec}, {"y": spec})
    model = onnx.ModelProto.FromString(plain.model)
    body = [node("MatMul", ["a", "b"], ["c"])]
    opset = helper.make_opsetid("", 20)
    model.functions.append(helper.make_function("ours", "product", ["a", "b"], ["c"], body, [opset]))
    model.opset_import.append(helper.make_opsetid("ours", 1))
    model.graph.node[0].CopyFrom(node("product", ["x", "w"], ["y"], domain="ours"))
    found = run(dataclasses.replace(plain, model=model.SerializeToString()), ["precision"], precision="bfloat16")
    assert operators(found) == [*["Cast"] * 4, "MatMul"]


def test_the_products_of_float16_are_those_of_rounded_operands() -> None:
    spec = (F32, (8, 8))
    given = graph([node("MatMul", ["x", "w"], ["y"])], {"w": spec}, {"x": spec}, {"y": spec})
    found = run(given, ["precision"], precision="float16")
    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal((8, 8)).astype("float32") for _ in range(2))
    (exact,), (lower,) = (compute(each, {"x": x, "w": w}) for each in (given, found))
    expected = x.astype("float16").astype("float32") @ w.astype("float16").astype("float32")
    np.testing.assert_allclose(lower, expected, rtol=1e-5, atol=1e-6)
    assert np.abs(exact - lower).max() > 1e-5


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_a_value_beyond_float16_stays_in_float32() -> None:
    spec = (F32, (2, 2))
    given = graph([node("MatMul", ["x", "w"], ["y"])], {"w": spec}, {"x": spec}, {"y": spec})
    found = run(given, ["precision"], precision="float16")
    w = np.float32([[1e6, -1e6], [0.1, np.inf]])
    (y,) = compute(found, {"x": np.eye(2, dtype="float32"), "w": w[:, :1].repeat(2, 1)})
    np.testing.assert_array_equal(y, [[1e6, 1e6], [np.float16(0.1)] * 2])

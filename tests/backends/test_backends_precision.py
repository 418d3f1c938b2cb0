"""Float32 arithmetic in a lower precision, and the engines' own optimisation at its lowest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from backend_graphs import Spec, graph, node
from onnx import TensorProto

from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import ENGINES, engine
from hybrid_infer.backends import onnxruntime as ort
from hybrid_infer.passes import chosen, run

LOWER = ("bfloat16", "float16")
X, W = (np.random.default_rng(seed).standard_normal((16, 16)).astype("float32") for seed in range(2))


def rounded(array: Any, precision: str) -> Any:
    if precision == "float16":
        return array.astype("float16").astype("float32")
    bits = array.view("uint32").astype("uint64")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype("uint32").view("float32")


def product() -> Any:
    spec: Spec = ("float32", (16, 16))
    return graph([node("MatMul", ["x", "w"], ["y"])], {"w": spec}, {"x": spec}, {"y": spec})


def needs(name: str) -> Any:
    found = engine(name)
    if missing := found.missing():
        pytest.skip(missing)
    return found


@pytest.mark.parametrize("live", [False, True], ids=["bound", "live"])
@pytest.mark.parametrize("optimise", [True, False], ids=["optimised", "plain"])
@pytest.mark.parametrize("precision", LOWER)
@pytest.mark.parametrize("name", ENGINES)
def test_products_are_those_of_rounded_operands(name: str, precision: str, optimise: bool, live: bool) -> None:
    found = needs(name)
    options = EngineOptions(threads=2, precision=precision, optimise=optimise, live=live)
    native = found.native(precision)
    passes = chosen(optimise=optimise, without=(), precision="float32" if native else precision)
    taken = run(product(), passes, precision=precision)
    if name == "openvino" and not native:
        with pytest.raises(EngineError, match=f"has no arithmetic in {precision} on this processor"):
            found.load(taken, [W], options)
        return
    program = found.load(taken, [W], options)
    (y,) = program.run([W, X] if live else [X])
    assert y.dtype == np.float32
    # A few products are so small that a float16 has fewer digits of them. Where the processor adds in float16, the
    # plugin's results are of that type as well.
    rtol = 1e-3 if name == "openvino" and precision == "float16" else 1e-4
    np.testing.assert_allclose(y, rounded(X, precision) @ rounded(W, precision), rtol=rtol, atol=2e-5)
    assert np.abs(y - X @ W).max() > 1e-4
    program.close()


def test_float32_stays_float32() -> None:
    for name in ENGINES:
        found = needs(name)
        assert found.native("float32")
        (y,) = found.load(product(), [W], EngineOptions(threads=2)).run([X])
        np.testing.assert_allclose(y, X @ W, rtol=1e-4, atol=1e-5)


def test_sessions_that_are_shared_differ_by_precision() -> None:
    """The model is the same for OpenVINO, whatever it computes in."""
    found = needs("openvino")
    results, programs = [], []
    for precision in ("float32", *filter(found.native, LOWER)):
        programs.append(found.load(product(), [], EngineOptions(threads=2, live=True, precision=precision)))
        results.append(programs[-1].run([W, X])[0])
    for lower in results[1:]:
        assert np.abs(results[0] - lower).max() > 1e-4


@pytest.mark.parametrize("name", ENGINES)
def test_the_input_of_a_normalisation_is_not_rounded(name: str) -> None:
    """Rows that differ little from their mean: bfloat16 leaves a digit of what is normalised."""
    found = needs(name)
    if not found.native("bfloat16") and name == "openvino":
        return
    wide: Spec = ("float32", (16, 16))
    normalised = graph(
        [node("MatMul", ["x", "e"], ["p"]), node("LayerNormalization", ["x", "s"], ["n"]),
         node("MatMul", ["n", "w"], ["q"]), node("Add", ["p", "q"], ["y"])],
        {"w": wide, "e": wide, "s": ("float32", (16,))}, {"x": wide}, {"y": wide},
    )  # fmt: skip
    x = 100 + X
    passes = chosen(optimise=True, without=(), precision="float32" if found.native("bfloat16") else "bfloat16")
    taken = run(normalised, passes, precision="bfloat16")
    weights = [W, np.zeros((16, 16), "float32"), np.ones(16, "float32")]
    (y,) = found.load(taken, weights, EngineOptions(threads=2, precision="bfloat16")).run([x])
    expected = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True) @ W
    np.testing.assert_allclose(y, expected, atol=0.01 * np.abs(expected).max())


#: Those that round where numbers are cast to bfloat16 and back; OpenVINO refuses it.
ROUNDING = [name for name in ENGINES if name != "openvino"]


def test_what_is_cast_to_bfloat16_and_back_is_rounded_or_refused() -> None:
    spec: Spec = ("float32", (16, 16))
    there_and_back = graph(
        [node("Cast", ["x"], ["n"], to=TensorProto.BFLOAT16), node("Cast", ["n"], ["y"], to=TensorProto.FLOAT)],
        {}, {"x": spec}, {"y": spec},
    )  # fmt: skip
    for name in ROUNDING:
        (y,) = needs(name).load(there_and_back, [], EngineOptions()).run([X])
        np.testing.assert_array_equal(y, rounded(X, "bfloat16"))
    with pytest.raises(EngineError, match="does not round where numbers are cast to bfloat16"):
        needs("openvino").load(there_and_back, [], EngineOptions())


def test_bfloat16_that_is_computed_with_is_still_computed_in_float32() -> None:
    spec: Spec = ("float32", (16, 16))
    between = graph(
        [
            node("Cast", ["x"], ["n"], to=TensorProto.BFLOAT16),
            node("Cast", ["n"], ["wide"], to=TensorProto.FLOAT),
            node("Neg", ["n"], ["m"]),
            node("Cast", ["m"], ["y"], to=TensorProto.FLOAT),
            node("Add", ["wide", "wide"], ["z"]),
        ],
        {}, {"x": spec}, {"y": spec, "z": spec},
    )  # fmt: skip
    for name in ROUNDING:
        y, z = needs(name).load(between, [], EngineOptions()).run([X])
        np.testing.assert_allclose(y, -X, rtol=1e-2)
        np.testing.assert_allclose(z, 2 * X, rtol=1e-2)


def test_what_is_cast_to_bfloat16_is_rounded_also_where_more_than_casts_read_it() -> None:
    """The rest of ``x - x.bfloat16().float()`` was 0 in silence where the rounded numbers were a result as well."""
    spec: Spec = ("float32", (16, 16))
    rest = graph(
        [
            node("Cast", ["x"], ["n"], to=TensorProto.BFLOAT16),
            node("Cast", ["n"], ["wide"], to=TensorProto.FLOAT),
            node("Sub", ["x", "wide"], ["rest"]),
            node("Neg", ["n"], ["negative"]),
        ],
        {}, {"x": spec}, {"rest": spec, "n": ("bfloat16", (16, 16)), "negative": ("bfloat16", (16, 16))},
    )  # fmt: skip
    near = rounded(X, "bfloat16")
    for name in ROUNDING:
        left, n, negative = needs(name).load(rest, [], EngineOptions()).run([X])
        np.testing.assert_array_equal(left, X - near)
        np.testing.assert_array_equal(n, near)
        np.testing.assert_array_equal(negative, -near)


@pytest.mark.parametrize(
    ("given", "between", "result", "number", "expected"),
    [
        ("float32", "float16", "int8", 2.9999, 3), ("float64", "float32", "int16", 2.999999999, 3),
        ("int32", "float16", "uint8", 2049, 0), ("int32", "float32", "int16", 16777217, 0),
        ("float32", "bfloat16", "uint8", 2.9999, 3), ("int16", "bfloat16", "int8", 257, 0),
        ("int64", "float64", "int16", 2**53 + 1, 0),
    ],
)  # fmt: skip
def test_small_integers_are_cast_from_what_was_rounded_before(
    given: str, between: str, result: str, number: float, expected: int
) -> None:
    kinds = {"float64": "DOUBLE", "float32": "FLOAT"}
    casts = [
        node("Cast", ["x"], ["n"], to=TensorProto.DataType.Value(kinds.get(between, between.upper()))),
        node("Cast", ["n"], ["y"], to=TensorProto.DataType.Value(result.upper())),
    ]
    found = graph(casts, {}, {"x": (given, (2,))}, {"y": (result, (2,))})
    (y,) = needs("onnxruntime").load(found, [], EngineOptions()).run([np.array([number, 1], given)])
    assert y.tolist() == [expected, 1]


def test_what_onnx_runtime_computes_in_float32_for_float16_is_rounded_before_it_is_cast_to_bytes() -> None:
    half: Spec = ("float16", (2,))
    casts = [node("Mul", ["x", "w"], ["n"]), node("Cast", ["n"], ["y"], to=TensorProto.UINT8)]
    found = graph(casts, {"w": half}, {"x": half}, {"y": ("uint8", (2,))})
    x, w = np.array([1.0009765625, 1], "float16"), np.array([0.9990234375, 1], "float16")
    expected = (x * w).astype("uint8").tolist()
    assert expected != (x.astype("float32") * w.astype("float32")).astype("uint8").tolist()
    (y,) = needs("onnxruntime").load(found, [w], EngineOptions()).run([x])
    assert y.tolist() == expected


@pytest.mark.parametrize("workers", [{}, {"workers": 0}], ids=["bound", "fed"])
def test_openvino_refuses_weights_that_float16_cannot_hold(
    monkeypatch: pytest.MonkeyPatch, workers: dict[str, int]
) -> None:
    """When it loads them, also where no thread is left for a session of its own."""
    found = needs("openvino")
    monkeypatch.setattr(type(found), "native", lambda self, precision: True)
    large = W.copy()
    large[3, 3] = -1e5
    with pytest.raises(EngineError, match="'w' has values beyond float16"):
        found.load(product(), [large], EngineOptions(threads=2, precision="float16", extra=workers))


@pytest.mark.parametrize("name", ENGINES)
def test_the_lowest_level_of_an_engine_is_part_of_its_plan(name: str) -> None:
    keys = {
        engine(name).plan_key(EngineOptions(optimise=optimise, precision=precision))
        for optimise in (True, False)
        for precision in ("float32", *LOWER)
    }
    assert len(keys) == 6


def test_the_lowest_level_of_onnxruntime() -> None:
    runtime = ort._import()
    settings = [ort._settings(runtime, EngineOptions(optimise=each), 1) for each in (True, False)]
    enum = runtime.GraphOptimizationLevel
    assert [each.graph_optimization_level for each in settings] == [enum.ORT_ENABLE_ALL, enum.ORT_DISABLE_ALL]


def test_the_lowest_level_of_openvino() -> None:
    """Chains of small operations become one generated kernel, or stay what they are."""
    found = needs("openvino")
    spec: Spec = ("float32", (16, 16))
    chain = graph(
        [node("Exp", ["x"], ["a"]), node("Add", ["a", "x"], ["b"]), node("Mul", ["b", "a"], ["c"]),
         node("Tanh", ["c"], ["y"])], {}, {"x": spec}, {"y": spec},
    )  # fmt: skip
    kinds = []
    for optimise in (True, False):
        program = found.load(chain, [], EngineOptions(threads=1, optimise=optimise))
        model = program._session._compiled.get_runtime_model()
        kinds.append({each.get_rt_info()["layerType"].astype(str) for each in model.get_ops()})
        program.close()
    assert "Subgraph" in kinds[0] and "Subgraph" not in kinds[1]

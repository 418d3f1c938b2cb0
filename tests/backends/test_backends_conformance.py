"""What every engine must do alike: the same tests for each, whatever it is built on."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from backend_graphs import Spec, graph, linear, node, value
from onnx import TensorProto, helper

from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions, TensorSpec
from hybrid_infer.backends import ENGINES as CANDIDATES
from hybrid_infer.backends import engine

#: The interpreter of our own executor is used only by name, and must do what the others do.
ENGINES = (*CANDIDATES, "native")

# Forms in which a program can hold its weights; each must give the same results.
FORMS = ("bound", "live", "shared")
ALL = [(name, form) for name in ENGINES for form in FORMS]


#: What an engine has no arithmetic for, and refuses.
REFUSED = {
    "openvino": ("float64",),  # the CPU plugin would compute it in float32
    "tensorrt": ("float64", "int16"),  # it has no such tensors
}


#: The element types of complex numbers that it takes and gives.
COMPLEX = {"onnxruntime": ("complex64", "complex128"), "openvino": ("complex64",)}


def needs(name: str) -> None:
    """Skip where an optional engine is not installed."""
    if missing := engine(name).missing():
        if name == "onnxruntime":
            pytest.fail(f"the library needs it: {missing}")
        pytest.skip(missing)


class Loader:
    """Loads graphs with one engine in one form, and runs a program as if its weights were bound.

    ``exchanged``: in which type a tensor of another one is exchanged.
    """

    exchanged: Mapping[str, str] = {"bfloat16": "float32"}

    def __init__(self, name: str, form: str) -> None:
        self.engine, self.form, self.programs = engine(name), form, []
        needs(name)

    def again(self, form: str) -> Loader:
        """One for the same engine in another form."""
        return type(self)(self.engine.name, form)

    def options(self, **more: Any) -> EngineOptions:
        extra = {"workers": 0} if self.form == "shared" else {}
        return EngineOptions(threads=2, live=self.form == "live", extra=extra, **more)

    def load(self, graph: Any, weights: Any = (), files: Any = None, **more: Any) -> Any:
        program = self.engine.load(graph, weights, self.options(**more), files)
        self.programs.append(program)
        if self.form != "live":
            return program.run
        return lambda arrays: program.run([*weights, *arrays])


@pytest.fixture(params=ALL, ids="-".join)
def loader(request: pytest.FixtureRequest) -> Any:
    loader = Loader(*request.param)
    yield loader
    for program in loader.programs:
        program.close()


def sample(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    values = np.arange(int(np.prod(shape))).reshape(shape)
    return np.asarray(values % 2 == 1 if dtype == "bool" else values % 100, dtype=dtype)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0, 3), (2, 0)], ids=str)
def test_each_element_type_and_shape_survives(loader: Loader, dtype: str, shape: tuple[int, ...]) -> None:
    spec: Spec = (dtype, shape)
    if dtype in REFUSED.get(loader.engine.name, ()):
        with pytest.raises(EngineError, match=dtype):
            loader.engine.wire(dtype)
        plain = graph([node("Neg", ["x"], ["y"])], {}, {"x": spec}, {"y": spec})
        with pytest.raises(EngineError, match=dtype):
            loader.load(plain)
        return
    either = [
        helper.make_graph([node("Identity", [name], [f"{name}_"])], name, [], [value(f"{name}_", spec)])
        for name in "xw"
    ]
    run = loader.load(
        graph(
            [
                node("Identity", ["x"], ["y"]),
                node("If", ["c"], ["z"], then_branch=either[0], else_branch=either[1]),
            ],
            {"w": spec},
            {"x": spec, "c": ("bool", ())},
            {"y": spec, "z": spec},
        ),
        [np.zeros(shape, dtype)],
    )
    x = sample(dtype, shape)
    for condition in (True, False):
        y, z = run([x, np.array(condition)])
        assert type(y) is type(z) is np.ndarray
        np.testing.assert_array_equal(y, x, strict=True)
        np.testing.assert_array_equal(z, x if condition else np.zeros(shape, dtype), strict=True)


@pytest.mark.parametrize("shape", [(1, 4, 4, 4), (4, 4, 4), (4, 4), (4,)], ids=str)
def test_a_weight_that_meets_a_transposed_tensor(loader: Loader, shape: tuple[int, ...]) -> None:
    """An engine that moves the transposition behind the sum turns the weight round, whose sizes do not tell."""
    run = loader.load(
        graph(
            [
                node("Conv", ["x", "k"], ["a"]),
                node("Transpose", ["a"], ["b"], perm=[0, 2, 3, 1]),
                node("Add", ["b", "w"], ["c"]),
                node("Transpose", ["c"], ["d"], perm=[0, 3, 1, 2]),
                node("Conv", ["d", "k"], ["y"]),
            ],
            {"k": ("float32", (4, 4, 1, 1)), "w": ("float32", shape)},
            {"x": ("float32", (1, 4, 4, 4))},
            {"y": ("float32", (1, 4, 4, 4))},
        ),
        [np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1), sample("float32", shape)],
    )
    x = sample("float32", (1, 4, 4, 4))
    (y,) = run([x])
    np.testing.assert_array_equal(y, x + sample("float32", shape)[(None,) * (4 - len(shape))].transpose(0, 3, 1, 2))


def test_bfloat16_is_exchanged_and_computed_as_float32(loader: Loader) -> None:
    """Casts, constants, typed attributes and the graphs inside nodes included."""
    one = helper.make_tensor("one", TensorProto.BFLOAT16, [1], [1.5])
    raw = helper.make_tensor("raw", TensorProto.BFLOAT16, [1], b"\x00\x40", raw=True)
    inner = helper.make_graph(
        [node("Constant", [], ["k"], value=one), node("Add", ["p", "k"], ["r"])],
        "then",
        [],
        [value("r", ("bfloat16", (3, 4)))],
    )
    other = helper.make_graph([node("Neg", ["p"], ["q"])], "else", [], [value("q", ("bfloat16", (3, 4)))])
    built = graph(
        [
            node("MatMul", ["x", "w"], ["m"]),
            node("Cast", ["f"], ["fb"], to=TensorProto.BFLOAT16),
            node("Add", ["m", "fb"], ["s"]),
            node("Mul", ["s", "raw"], ["p"]),
            node("If", ["c"], ["o"], then_branch=inner, else_branch=other),
            node("LayerNormalization", ["o", "g"], ["y"], axis=-1),
        ],
        {"w": ("bfloat16", (4, 4)), "g": ("bfloat16", (4,))},
        {"x": ("bfloat16", (3, 4)), "f": ("float32", (4,)), "c": ("bool", ())},
        {"y": ("bfloat16", (3, 4)), "o": ("bfloat16", ("n", 4))},
        initializers=[raw],
    )
    rng = np.random.default_rng(0)
    x, w, f = (rng.standard_normal(shape).astype("float32") for shape in ((3, 4), (4, 4), (4,)))
    run = loader.load(built, [w, np.ones(4, "float32")])
    program = loader.programs[-1]
    narrow = loader.exchanged["bfloat16"]
    assert (program.input_dtypes, program.output_dtypes) == ((narrow, "float32", "bool"), (narrow,) * 2)
    product = (x @ w + f) * 2.0
    rounded = 1e-5 if narrow == "float32" else 4e-2
    for condition, expected in ((True, product + 1.5), (False, -product)):
        y, o = run([x, f, np.array(condition)])
        np.testing.assert_allclose(o, expected, rtol=rounded, atol=rounded)
        np.testing.assert_allclose(y.std(axis=-1), 1, rtol=1e-2)


def test_float16_computes(loader: Loader) -> None:
    spec: Spec = ("float16", ("n", 8))
    run = loader.load(
        graph([node("Transpose", ["w"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["m"]),
               node("Softmax", ["m"], ["y"])], {"w": ("float16", (8, 8))}, {"x": spec}, {"y": spec}),
        [np.eye(8, dtype="float16")],
    )  # fmt: skip
    x = np.linspace(-1, 1, 16, dtype="float16").reshape(2, 8)
    (y,) = run([x])
    assert y.dtype == np.float16
    e = np.exp(x.astype("float32"))
    np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), rtol=5e-3)


def test_loops_and_branches_see_the_weights(loader: Loader) -> None:
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("MatMul", ["h", "w"], ["h2"])], "body",
        [value("i", ("int64", ())), value("go", ("bool", ())), value("h", ("float32", ("n", 3)))],
        [value("on", ("bool", ())), value("h2", ("float32", ("n", 3)))],
    )  # fmt: skip
    built = graph(
        [node("Loop", ["times", "", "x"], ["y"], body=body)],
        {"w": ("float32", (3, 3))},
        {"x": ("float32", ("n", 3)), "times": ("int64", ())},
        {"y": ("float32", ("n", 3))},
    )
    w = np.array([[0, 1, 0], [0, 0, 1], [2, 0, 0]], "float32")
    run = loader.load(built, [w])
    x = np.arange(6, dtype="float32").reshape(2, 3)
    for times in (0, 1, 3):
        np.testing.assert_allclose(run([x, np.array(times)])[0], x @ np.linalg.matrix_power(w, times))


def test_transposed_weight_used_in_every_way(loader: Loader) -> None:
    """In several products, left of one, in an inner graph and as a result; with a vector to its left."""
    branch = [
        helper.make_graph([node("Neg", ["t4"], [f"r{i}"])], f"b{i}", [], [value(f"r{i}", ("float32", (3, 2)))])
        for i in (0, 1)
    ]
    turn = [node("Transpose", [f"w{i}"], [f"t{i}"], perm=[1, 0]) for i in range(5)]
    built = graph(
        [
            *turn,
            node("MatMul", ["x", "t0"], ["a"]),
            node("MatMul", ["x", "t0"], ["b"]),
            node("MatMul", ["v", "t1"], ["c"]),
            node("MatMul", ["t2", "u"], ["d"]),
            node("MatMul", ["x", "t3"], ["e"]),
            node("If", ["flag"], ["f"], then_branch=branch[0], else_branch=branch[1]),
            node("MatMul", ["x", "t4"], ["g"]),
        ],
        {f"w{i}": ("float32", (2, 3)) for i in range(5)},
        {"x": ("float32", (5, "n", 3)), "v": ("float32", (3,)), "u": ("float32", (2,)), "flag": ("bool", ())},
        {
            "a": ("float32", (5, "n", 2)), "b": ("float32", (5, "n", 2)), "c": ("float32", (2,)),
            "d": ("float32", (3,)), "e": ("float32", (5, "n", 2)), "t3": ("float32", (3, 2)),
            "f": ("float32", (3, 2)), "g": ("float32", (5, "n", 2)),
        },
    )  # fmt: skip
    rng = np.random.default_rng(1)
    w = [rng.standard_normal((2, 3)).astype("float32") for _ in range(5)]
    x, v, u = (rng.standard_normal(shape).astype("float32") for shape in ((5, 4, 3), (3,), (2,)))
    results = loader.load(built, w)([x, v, u, np.array(True)])
    expected = [x @ w[0].T, x @ w[0].T, v @ w[1].T, w[2].T @ u, x @ w[3].T, w[3].T, -w[4].T, x @ w[4].T]
    for result, right in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-6)


def test_products_of_transposed_matrices_and_vectors(loader: Loader) -> None:
    """Of inputs, so that nothing is constant: engines fold transposes into products, and have got it wrong."""
    built = graph(
        [
            node("Transpose", ["a"], ["t"], perm=[1, 0]),
            node("Transpose", ["a"], ["same"], perm=[0, 1]),
            node("MatMul", ["t", "u"], ["p"]),
            node("MatMul", ["v", "t"], ["q"]),
            node("MatMul", ["same", "b"], ["r0"]),
            node("Add", ["r0", "w"], ["r"]),
            node("Transpose", ["batch"], ["bt"], perm=[0, 2, 1]),
            node("MatMul", ["bt", "u"], ["s"]),
            node("Neg", ["u"], ["minus"]),
            node("MatMul", ["t", "minus"], ["z"]),
            node("Constant", [], ["sizes"], value_ints=[3, -1]),
            node("Transpose", ["b"], ["other"], perm=[1, 0]),
            node("Reshape", ["other", "sizes"], ["as_it_was"]),  # which engines drop
            node("MatMul", ["as_it_was", "v"], ["o"]),
        ],
        {"w": ("float32", (3,))},
        {
            "a": ("float32", (3, 3)),
            "b": ("float32", (3, 3)),
            "u": ("float32", (3,)),
            "v": ("float32", (3,)),
            "batch": ("float32", (2, 3, "k")),
        },
        {
            **{name: ("float32", (3,)) for name in "pqzo"},
            "r": ("float32", (3, 3)),
            "s": ("float32", (2, "k")),
        },
    )
    rng = np.random.default_rng(3)
    w, b, a, u, v, batch = (
        rng.standard_normal(shape).astype("float32") for shape in ((3,), (3, 3), (3, 3), (3,), (3,), (2, 3, 5))
    )
    results = loader.load(built, [w])([a, b, u, v, batch])
    expected = [a.T @ u, v @ a.T, -(a.T @ u), b.T @ v, a @ b + w, batch.transpose(0, 2, 1) @ u]
    for result, right in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-6)


def test_unused_weights_and_inputs_are_ignored(loader: Loader) -> None:
    spec: Spec = ("float32", ("n",))
    built = graph([node("Add", ["x", "w"], ["y"])], {"w": ("float32", (1,))}, {"x": spec}, {"y": spec},
                  unused_weights=2, unused_inputs=1)  # fmt: skip
    run = loader.load(built, [None, np.ones(7), np.ones(1, "float32")])
    np.testing.assert_array_equal(run([None, np.zeros(3, "float32")])[0], np.ones(3, "float32"))


def test_layouts_of_inputs_and_weights(loader: Loader) -> None:
    w = np.arange(32, dtype="float32").reshape(4, 8)[:, ::2]
    b = np.zeros(4, "float32")
    b.flags.writeable = False
    run = loader.load(linear(), [w, b])
    base = np.arange(24, dtype="float32").reshape(4, 6)
    frozen = base[:, :4].copy()
    frozen.flags.writeable = False
    for x in (base.T, base[::-2, 1:5], np.broadcast_to(base[0, :4], (3, 4)), frozen, np.asfortranarray(frozen)):
        np.testing.assert_allclose(run([x])[0], x @ w.T)


def test_a_weight_of_another_shape_is_refused_when_it_is_loaded(loader: Loader) -> None:
    """Also where it could be broadcast, and where no threads are left for a session that has the weights in it."""
    w, b, x = np.eye(4, dtype="float32"), np.ones(4, "float32"), np.zeros((2, 4), "float32")
    for weights in ([w, b.reshape(1, 4)], [w, b[:1]], [w[:, :1], b]):
        with pytest.raises(EngineError):
            run = loader.load(linear(), weights)
            if loader.form == "live":
                run([x])


def test_results_belong_to_the_caller(loader: Loader) -> None:
    spec: Spec = ("float32", (3,))
    built = graph(
        [node("Identity", ["x"], ["a"]), node("Identity", ["x"], ["b"]), node("Identity", ["a"], ["c"]),
         node("Identity", ["w"], ["d"]), node("Neg", ["w"], ["e"]), node("Reshape", ["x", "shape"], ["f"])],
        {"w": spec}, {"x": spec}, {name: spec for name in "abcde"} | {"f": ("float32", (1, 3))},
        initializers=[helper.make_tensor("shape", TensorProto.INT64, [2], [1, 3])],
    )  # fmt: skip
    x, w = np.arange(3, dtype="float32"), np.full(3, 7, "float32")
    run = loader.load(built, [w])
    first = run([x])
    kept = [result.copy() for result in first]
    second = run([x])
    everything = [x, w, *first, *second]
    for i, one in enumerate(everything):
        assert not any(np.shares_memory(one, other) for other in everything[i + 1 :])
    for result in second:
        result[...] = -5
    run([x + 1])
    for result, value_then in zip(first, kept, strict=True):
        np.testing.assert_array_equal(result, value_then)
    np.testing.assert_array_equal(x, np.arange(3))
    np.testing.assert_array_equal(w, np.full(3, 7))
    np.testing.assert_array_equal(run([x])[4], np.full(3, -7))


def test_results_outlive_the_program(loader: Loader) -> None:
    program_result = loader.load(linear(), [np.eye(4, dtype="float32"), np.ones(4, "float32")])
    x = np.arange(8, dtype="float32").reshape(2, 4)
    (y,) = program_result([x])
    loader.programs[-1].close()
    np.testing.assert_array_equal(y, x + 1)


def test_prepared_files_serve_other_weights(loader: Loader) -> None:
    """One plan, made once, for every instance."""
    files = loader.engine.prepare(linear(), loader.options())
    assert all(type(data) is bytes for data in files.values())
    x = np.arange(8, dtype="float32").reshape(2, 4)
    for seed in range(3):
        w = np.random.default_rng(seed).standard_normal((4, 4)).astype("float32")
        run = loader.load(linear(), [w, np.zeros(4, "float32")], files)
        np.testing.assert_allclose(run([x])[0], x @ w.T, rtol=1e-5, atol=1e-5)


def test_lowest_optimisation_computes_the_same(loader: Loader) -> None:
    x = np.arange(8, dtype="float32").reshape(2, 4)
    run = loader.load(linear(), [np.eye(4, dtype="float32"), np.ones(4, "float32")], optimise=False)
    np.testing.assert_array_equal(run([x])[0], x + 1)


def test_live_weights_are_read_at_each_run(loader: Loader) -> None:
    live = loader.again("live")
    w, b, x = np.eye(4, dtype="float32"), np.zeros(4, "float32"), np.arange(8, dtype="float32").reshape(2, 4)
    live.load(linear())
    (program,) = live.programs
    np.testing.assert_array_equal(program.run([w, b, x])[0], x)
    w *= 3
    b += 1
    np.testing.assert_array_equal(program.run([w, b, x])[0], 3 * x + 1)
    program.close()


def test_many_threads_at_once(loader: Loader) -> None:
    rng = np.random.default_rng(2)
    weights = [[rng.standard_normal((64, 64)).astype("float32"), np.zeros(64, "float32")] for _ in range(3)]
    runs = [loader.load(linear(64), pair) for pair in weights]
    inputs = [rng.standard_normal((n, 64)).astype("float32") for n in (1, 7, 64)]
    start = threading.Barrier(6)

    def work(seed: int) -> None:
        order = np.random.default_rng(seed)
        start.wait()
        for _ in range(60):
            i, x = order.integers(3), inputs[order.integers(3)]
            np.testing.assert_allclose(runs[i]([x])[0], x @ weights[i][0].T, rtol=1e-4, atol=1e-4)

    with ThreadPoolExecutor(6) as pool:
        for outcome in [pool.submit(work, seed) for seed in range(6)]:
            outcome.result()


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ([], "0 arrays given to a program that takes 1"),
        ([np.zeros((1, 4), "float32")] * 2, "2 arrays given to a program that takes 1"),
        ([np.zeros((1, 4), "float64")], "data type"),
        ([np.zeros(4, "float32")], "rank"),
        ([np.zeros((1, 5), "float32")], "."),
    ],
)
def test_wrong_arrays_are_refused_with_a_reason(loader: Loader, arrays: list[Any], says: str) -> None:
    weights = [np.eye(4, dtype="float32"), np.ones(4, "float32")]
    loader.load(linear(), weights)
    program = loader.programs[-1]
    given = [*weights, *arrays] if loader.form == "live" else arrays
    if loader.form == "live":
        says = (
            says.replace("0 arrays", "2 arrays", 1)
            .replace("takes 1", "takes 3")
            .replace("2 arrays", f"{len(given)} arrays", 1)
        )
    with pytest.raises(EngineError, match=says) as caught:
        program.run(given)
    assert caught.value.engine == loader.engine.name
    assert "\n" not in str(caught.value)
    assert not any(noise in str(caught.value) for noise in ("[ONNXRuntimeError]", "Exception from", ".cpp"))


def test_wrong_weights_and_graphs_are_refused(loader: Loader) -> None:
    good = [np.eye(4, dtype="float32"), np.ones(4, "float32")]
    if loader.form != "live":
        for weights in ([good[0]], [*good, good[0]], [good[0], None], [good[0], np.ones(4, "uint32")]):
            with pytest.raises(EngineError, match="weight"):
                loader.load(linear(), weights)
    odd = graph([node("Identity", ["x"], ["y"])], {}, {"x": ("float32", (1,))}, {"y": ("float32", (1,))})
    for fields, says in (
        ({"model": b"no model"}, "not an ONNX model"),
        ({"inputs": ("z",)}, "names given"),
        ({"outputs": ("z",)}, "no outputs named"),
    ):
        with pytest.raises(EngineError, match=says):
            loader.load(type(odd)(**{**vars(odd), **fields}))
    unknown = graph([node("Identity", ["x"], ["y"])], {}, {"x": ("float32", (1,))}, {"y": ("float32", (1,))})
    model = __import__("onnx").ModelProto.FromString(unknown.model)
    model.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(EngineError, match="NoSuchOperator") as caught:
        loader.load(type(unknown)(**{**vars(unknown), "model": model.SerializeToString()}))
    assert "\n" not in str(caught.value) and ".cpp" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_are_pairs_to_an_engine(loader: Loader, dtype: str) -> None:
    if dtype not in COMPLEX.get(loader.engine.name, ()):
        with pytest.raises(EngineError, match=dtype):
            loader.engine.wire(dtype)
        return
    assert loader.engine.wire(dtype) == dtype
    part = {"complex64": "float32", "complex128": "float64"}[dtype]
    nodes = [node("Add", ["x", "w"], ["s"]), node("Neg", ["s"], ["y"]), node("Neg", ["r"], ["m"])]
    given = {"x": (part, ("n", 3, 2)), "r": (part, (2,))}
    pairs = graph(nodes, {"w": (part, (3, 2))}, given, {"m": (part, (2,)), "y": (part, ("n", 3, 2))})
    specs = TensorSpec(dtype, (None, 3)), TensorSpec(part, (2,))
    made = replace(pairs, input_specs=specs, output_specs=(specs[1], specs[0]))
    weight = (np.arange(3) - 1j).astype(dtype)
    run = loader.load(made, [weight])
    real = np.ones(2, part)
    for rows in (1, 4):
        x = (np.arange(rows * 3).reshape(3, rows) * (1 + 2j)).astype(dtype).T  # with gaps
        minus, found = run([x, real])
        np.testing.assert_array_equal(found, -(x + weight))
        np.testing.assert_array_equal(minus, -real)
        assert found.dtype == dtype and found.shape == (rows, 3)
    with pytest.raises(EngineError, match="data type float32" if part == "float32" else "data type float64"):
        run([np.ones((1, 3), part), real])


def test_a_closed_program_says_so(loader: Loader) -> None:
    loader.load(linear(), [np.eye(4, dtype="float32"), np.ones(4, "float32")])
    program = loader.programs[-1]
    assert program.usable()
    program.close()
    program.close()
    assert not program.usable()
    count = 3 if loader.form == "live" else 1
    with pytest.raises(EngineError, match="closed"):
        program.run([np.zeros((1, 4), "float32")] * count)


def test_weights_and_inputs_that_no_result_needs(loader: Loader) -> None:
    """As a graph has them that is not pruned: unread, or read by what nobody reads."""
    spec: Spec = ("float32", (3,))
    run = loader.load(
        graph(
            [node("Neg", ["dead"], ["nowhere"]), node("Add", ["x", "w"], ["y"])],
            {"unread": spec, "dead": spec, "w": spec}, {"spare": spec, "x": spec}, {"y": spec},
        ),
        [np.full(3, value, "float32") for value in (5, 7, 1)],
    )  # fmt: skip
    (y,) = run([np.full(3, 9, "float32"), np.arange(3, dtype="float32")])
    np.testing.assert_array_equal(y, [1, 2, 3])

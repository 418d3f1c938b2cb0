"""What is OpenVINO's alone: what it is kept from computing wrongly, its threads, forked children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backend_graphs import Spec, graph, linear, node
from onnx import TensorProto, helper

from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer.backends import engine

pytest.importorskip("openvino", reason="openvino is not installed")

ENGINE = engine("openvino")
OPTIONS = EngineOptions(threads=2)


def load(built: Any, weights: Any = (), options: EngineOptions = OPTIONS) -> Any:
    return ENGINE.load(built, weights, options)


def unary(operator: str, dtype: str, **attributes: Any) -> Any:
    spec: Spec = (dtype, ("n",))
    return graph([node(operator, ["x"], ["y"], **attributes)], {}, {"x": spec}, {"y": spec})


def test_int64_beyond_int32_is_refused_at_the_call_and_at_load() -> None:
    """The plugin computes in int32: 2**40 + 3 would come out as 3."""
    run = load(unary("Identity", "int64")).run
    edges = np.array([-(2**31), 2**31 - 1])
    np.testing.assert_array_equal(run([edges])[0], edges)
    for value in (-(2**31) - 1, 2**31, 2**40 + 3, np.iinfo("int64").max):
        with pytest.raises(EngineError, match="'x' has values beyond int32"):
            run([np.array([0, value])])
    spec: Spec = ("int64", (1,))
    built = graph([node("Add", ["x", "w"], ["y"])], {"w": spec}, {"x": spec}, {"y": spec})
    for options in (OPTIONS, replace(OPTIONS, extra={"workers": 0})):  # the weight bound, and fed
        with pytest.raises(EngineError, match="'w' has values beyond int32"):
            load(built, [np.array([2**31])], options)


def test_constants_beyond_int32_are_refused_where_they_are_not_bounds() -> None:
    """``x[2:]`` is exported as a slice up to the largest int64."""
    spec: Spec = ("int64", ("n",))

    def built(operator: str, *constants: int) -> Any:
        names = [f"k{i}" for i in range(len(constants))]
        tensors = [helper.make_tensor(name, TensorProto.INT64, [1], [value])
                   for name, value in zip(names, constants, strict=True)]  # fmt: skip
        return graph([node(operator, ["x", *names], ["y"])], {}, {"x": spec}, {"y": spec}, initializers=tensors)

    (y,) = load(built("Slice", 2, np.iinfo("int64").max, 0)).run([np.arange(5)])
    np.testing.assert_array_equal(y, [2, 3, 4])
    (y,) = load(built("Min", 2**40)).run([np.arange(5)])
    np.testing.assert_array_equal(y, np.arange(5))
    with pytest.raises(EngineError, match="Add takes a constant beyond it"):
        load(built("Add", 2**40))


def test_arguments_of_images_that_the_plugin_overlooks_are_refused() -> None:
    def built(operator: str, *given: str, **attributes: Any) -> Any:
        scales = [helper.make_tensor(name, TensorProto.FLOAT, [4], [1, 1, 0.5, 0.5]) for name in given if name]
        spec: Spec = ("float32", (1, 1, "n", "m"))
        made = node(operator, ["x", *given], ["y"], **attributes)
        return graph([made], {}, {"x": spec}, {"y": ("float32", (1, 1, "k", "l"))}, initializers=scales)

    x = np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8)
    with pytest.raises(EngineError, match="smoothed"):
        load(built("Resize", "", "s", mode="linear", antialias=1))
    (y,) = load(built("Resize", "", "s", mode="linear")).run([x])
    np.testing.assert_allclose(y[0, 0, 0], [4.5, 6.5, 8.5, 10.5])
    windows: dict[str, Any] = {"kernel_shape": [4, 4], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1}
    with pytest.raises(EngineError, match="beyond the padding"):
        load(built("AveragePool", count_include_pad=1, **windows))
    (y,) = load(built("AveragePool", **windows)).run([x])
    last = [x[0, 0, rows, 5:].mean() for rows in (slice(3), slice(2, 6), slice(5, 8))]
    np.testing.assert_allclose(y[0, 0, :, -1], last)
    apart: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1}
    with pytest.raises(EngineError, match="begins beyond the values"):
        load(built("MaxPool", **apart))
    (y,) = load(built("AveragePool", **apart)).run([x[..., :6, :6]])
    assert y.shape == (1, 1, 2, 2)
    (y,) = load(built("MaxPool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)).run([x])
    np.testing.assert_allclose(y[0, 0, :, -1], [x[0, 0, row : row + 3, 6:].max() for row in (0, 2, 4, 6)])


@pytest.mark.parametrize("settings", [{}, {"onesided": 1}, {"inverse": 1}])
@pytest.mark.parametrize("length", [8, 400, "n"])
def test_fourier_transforms_lose_digits_with_the_length_and_are_refused(settings: Any, length: Any) -> None:
    found = "m" if settings.get("onesided") else length
    parts = 2 if settings.get("inverse") else 1
    made = node("DFT", ["x", "", "axis"], ["y"], **settings)
    axis = helper.make_tensor("axis", TensorProto.INT64, [], [1])
    transform = graph(
        [made], {}, {"x": ("float32", (2, length, parts))}, {"y": ("float32", (2, found, 2))}, initializers=[axis],
        opset=20,
    )  # fmt: skip
    with pytest.raises(EngineError, match="digits of a Fourier transform"):
        load(transform)


@pytest.mark.parametrize("length", [8, "n"])
def test_sorts_that_leave_equal_values_in_any_order_are_refused(length: Any) -> None:
    def sort(count: Any, *results: str) -> Graph:
        made = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "last"], ["all"])] if count == "all" else []
        given = [("last", [1]), *([] if made else [("count", [count])])]
        top = node("TopK", ["x", "all" if made else "count"], ["v", "i"], axis=1, largest=0)
        specs: dict[str, Spec] = {"v": ("float32", (2, "k")), "i": ("int64", (2, "k"))}
        placed = [helper.make_tensor(name, TensorProto.INT64, [1], value) for name, value in given]
        found = {name: specs[name] for name in results}
        return graph([*made, top], {}, {"x": ("float32", (2, length))}, found, initializers=placed)

    with pytest.raises(EngineError, match="orders equal values"):
        load(sort("all", "v", "i"))
    x = np.array([[3, 1, 2, 1, 1, 3, 0, 2]] * 2, np.float32)
    np.testing.assert_array_equal(load(sort("all", "v")).run([x])[0], np.sort(x))
    np.testing.assert_array_equal(load(sort(1, "v", "i")).run([x])[1], [[6], [6]])


def test_float64_numbers_of_which_the_larger_is_taken_are_a_constant() -> None:
    spec: Spec = ("float32", ("n",))
    given = [helper.make_tensor(name, TensorProto.DOUBLE, [1], [value]) for name, value in (("a", 2.0), ("b", -3.0))]
    nodes = [
        node("Max", ["a", "b"], ["most"]), node("Min", ["most", "b"], ["least"]),
        node("Cast", ["most"], ["m"], to=TensorProto.FLOAT), node("Cast", ["least"], ["l"], to=TensorProto.FLOAT),
        node("Mul", ["x", "m"], ["xm"]), node("Add", ["xm", "l"], ["y"]),
    ]  # fmt: skip
    x = np.arange(3, dtype=np.float32)
    numbers = graph(nodes, {}, {"x": spec}, {"y": spec}, initializers=given)
    np.testing.assert_array_equal(load(numbers).run([x])[0], x * 2 - 3)


def test_float64_inside_a_graph_is_refused() -> None:
    spec: Spec = ("float32", ("n",))
    wide = graph(
        [
            node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE),
            node("Exp", ["d"], ["e"]),
            node("Cast", ["e"], ["y"], to=TensorProto.FLOAT),
        ],
        {}, {"x": spec}, {"y": spec},
    )  # fmt: skip
    with pytest.raises(EngineError, match="gives float64"):
        load(wide)
    half = helper.make_tensor("half", TensorProto.DOUBLE, [], [0.5])
    constant = graph(
        [node("Cast", ["half"], ["h"], to=TensorProto.FLOAT), node("Mul", ["x", "h"], ["y"])],
        {}, {"x": spec}, {"y": spec}, initializers=[half],
    )  # fmt: skip
    np.testing.assert_array_equal(load(constant).run([np.ones(2, "float32")])[0], [0.5, 0.5])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_arithmetic_that_would_saturate_is_refused(dtype: str) -> None:
    spec: Spec = (dtype, ("n",))
    with pytest.raises(EngineError, match="8-bit integers wraps around"):
        load(graph([node("Add", ["x", "x"], ["y"])], {}, {"x": spec}, {"y": spec}))


def test_in_the_body_of_another_operation_too() -> None:
    spec: Spec = ("int8", (3,))
    inner = [
        helper.make_graph([node(operator, ["x", "x"], [f"r{operator}"])], operator, [],
                          [helper.make_tensor_value_info(f"r{operator}", TensorProto.INT8, [3])])
        for operator in ("Max", "Add")
    ]  # fmt: skip
    built = graph([node("If", ["c"], ["y"], then_branch=inner[0], else_branch=inner[1])],
                  {}, {"x": spec, "c": ("bool", ())}, {"y": spec})  # fmt: skip
    with pytest.raises(EngineError, match="8-bit integers wraps around"):
        load(built)


INDEXED = {
    "GatherND": ({"t": ("float32", (10, 8))}, ("n", 1), ("n", 8)),
    "Gather": ({"t": ("int64", (10,))}, ("n",), ("n",)),
}


@pytest.mark.parametrize("operator", INDEXED)
def test_indices_that_are_taken_unseen_are_refused(operator: str) -> None:
    """With an index far out of range the process was killed by a signal."""
    table, indices, result = INDEXED[operator]
    built = graph([node(operator, ["t", "i"], ["y"])], {}, {**table, "i": ("int64", indices)},
                  {"y": (table["t"][0], result)})  # fmt: skip
    with pytest.raises(EngineError, match=f"an index of {operator} is out of range"):
        load(built)


@pytest.mark.parametrize(("table", "indices"), [((10, 3), (0, 4)), ((0, 3), (2, 4))])
def test_rows_of_nothing_are_refused(table: tuple[int, ...], indices: tuple[int, ...]) -> None:
    """An embedding of an empty batch: while it was compiled, the process was killed by a signal."""
    built = graph([node("Gather", ["t", "i"], ["y"])], {}, {"t": ("float32", table), "i": ("int64", indices)},
                  {"y": ("float32", (*indices, 3))})  # fmt: skip
    with pytest.raises(EngineError, match="Gather has no elements"):
        load(built)


def test_nothing_expanded_is_refused() -> None:
    """It too killed the process while it was compiled."""
    shape = helper.make_tensor("shape", TensorProto.INT64, [3], [4, 3, 0])
    expanded = node("Expand", ["x", "shape"], ["y"])
    built = graph([expanded], {}, {"x": ("float32", (3, 0))}, {"y": ("float32", (4, 3, 0))}, initializers=[shape])
    with pytest.raises(EngineError, match="Broadcast has no elements"):
        load(built)


def test_an_argument_there_and_back_is_refused() -> None:
    """Where sizes vary, the heap was spoilt."""
    spec: Spec = ("float16", (2, "n"))
    nodes = [node("Cast", ["x"], ["h"], to=TensorProto.FLOAT), node("Cast", ["h"], ["y"], to=TensorProto.FLOAT16)]
    with pytest.raises(EngineError, match="spoils the heap"):
        load(graph(nodes, {}, {"x": spec}, {"y": spec}))


def test_a_cast_of_an_argument_to_bfloat16_leaves_the_heap_as_it_is() -> None:
    """It was a conversion of float32 to itself, which wrote past the result: the process ended in half of the runs."""
    script = """
import torch
from hybrid_infer import inference

hot = inference(lambda x: x.bfloat16(), backend="openvino", fallback="error")
with torch.no_grad():
    for i in range(300):
        x = torch.randn(2, (3, 7, 6, 2, 9, 31, 5)[i % 7])
        assert torch.allclose(hot(x).float(), x, rtol=1e-2)
"""
    pytest.importorskip("torch")
    environment = {**os.environ, "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "37"}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, env=environment)
    assert ended.returncode == 0, ended.stderr[-2000:]


SCALED = node("Mul", ["scores", "scale"], ["scaled"])
PLAIN = [SCALED, node("Softmax", ["scaled"], ["shares"], axis=-1)]
WRITTEN_OUT = [
    SCALED,
    node("ReduceMax", ["scaled", "last"], ["most"]),
    node("Sub", ["scaled", "most"], ["less"]),
    node("Exp", ["less"], ["powers"]),
    node("ReduceSum", ["powers", "last"], ["sum"]),
    node("Div", ["powers", "sum"], ["shares"]),
]


@pytest.mark.parametrize("softmax", [PLAIN, WRITTEN_OUT])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_attention_to_one_key_at_first_leaves_later_calls_right(softmax: Any, precision: str) -> None:
    """What came after a first call with one key was wrong from 16 keys on, by as much as it was large."""
    if not ENGINE.native(precision):
        pytest.skip(f"this processor has no {precision}")
    queries, keys = ("float32", ("b", 4, "q", 8)), ("float32", ("b", 4, "k", 8))
    nodes = [
        node("Transpose", ["keys"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["queries", "turned"], ["scores"]),
        *softmax,
        node("MatMul", ["shares", "values"], ["y"]),
    ]
    constants = [
        helper.make_tensor("scale", TensorProto.FLOAT, [], [0.35]),
        helper.make_tensor("last", TensorProto.INT64, [1], [-1]),
    ]
    inputs: dict[str, Spec] = {"queries": queries, "keys": keys, "values": keys}
    built = graph(nodes, {}, inputs, {"y": queries}, initializers=constants)
    program = load(built, options=replace(OPTIONS, precision=precision))
    random = np.random.default_rng(0)
    for b, q, k in ((1, 1, 1), (4, 16, 16), (2, 5, 7), (3, 17, 40)):
        shapes = [(b, 4, size, 8) for size in (q, k, k)]
        query, key, value = (random.standard_normal(shape).astype("float32") for shape in shapes)
        shares = np.exp(query @ key.swapaxes(-1, -2) * 0.35)
        expected = shares / shares.sum(-1, keepdims=True) @ value
        (y,) = program.run([query, key, value])
        np.testing.assert_allclose(y, expected, atol=1e-5 if precision == "float32" else 0.05)


def test_indices_that_come_from_the_graph_are_not() -> None:
    """As in ``x[mask]``, and in what is computed from shapes."""
    built = graph(
        [
            node("NonZero", ["m"], ["places"]),
            node("Transpose", ["places"], ["turned"], perm=[1, 0]),
            node("GatherND", ["x", "turned"], ["y"]),
            node("Shape", ["x"], ["shape"]),
            node("Gather", ["shape", "first"], ["z"]),
        ],
        {}, {"x": ("float32", ("n",)), "m": ("bool", ("n",))}, {"y": ("float32", ("k",)), "z": ("int64", ())},
        initializers=[helper.make_tensor("first", TensorProto.INT64, [], [0])],
    )  # fmt: skip
    x = np.arange(5, dtype="float32")
    y, z = load(built).run([x, x > 2])
    np.testing.assert_array_equal(y, [3, 4])
    assert z == 5


def test_a_table_gives_zeros_where_an_index_is_out_of_range() -> None:
    """Pinned: the README says so."""
    built = graph([node("Gather", ["w", "i"], ["y"])], {"w": ("float32", (10, 8))}, {"i": ("int64", ("n",))},
                  {"y": ("float32", ("n", 8))})  # fmt: skip
    (y,) = load(built, [np.ones((10, 8), "float32")]).run([np.array([9, -10, 10, -11, 2**31 - 1])])
    np.testing.assert_array_equal(y[:, 0], [1, 1, 0, 0, 0])


def test_float32_is_computed_in_float32() -> None:
    """Also where the processor has bfloat16 instructions, which the plugin would prefer."""
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((2, 256, 256)).astype("float32")
    (y,) = load(linear(256), [w, np.zeros(256, "float32")]).run([x])
    right = x.astype("float64") @ w.T
    assert np.abs(y - right).max() < 1e-4


def test_a_weight_of_another_shape_or_that_is_read_only() -> None:
    w, b = np.eye(4, dtype="float32"), np.ones(4, "float32")
    with pytest.raises(EngineError, match="the weight 'b' is"):
        load(linear(), [w, b.reshape(1, 4)])
    w.flags.writeable = b.flags.writeable = False
    np.testing.assert_array_equal(load(linear(), [w, b]).run([w])[0], w + 1)


def test_a_run_after_one_that_failed() -> None:
    program = load(linear(), [np.eye(4, dtype="float32"), np.zeros(4, "float32")])
    x = np.ones((2, 4), "float32")
    program.run([x])
    with pytest.raises(EngineError):
        program.run([np.ones((2, 5), "float32")])
    np.testing.assert_array_equal(program.run([x])[0], x)


THREADS = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np
from backend_graphs import linear
from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import _threads, engine

served = engine("openvino")
files = served.prepare(linear(), EngineOptions(threads=2))
weights = [[np.full((4, 4), seed, "float32"), np.zeros(4, "float32")] for seed in range(24)]
x = np.ones((2, 4), "float32")

def added(options, weights=weights):
    before = len(os.listdir("/proc/self/task"))
    programs = [served.load(linear(), each, options, files) for each in weights]
    for seed, program in enumerate(programs):
        np.testing.assert_array_equal(program.run([x])[0], np.full((2, 4), 4 * seed))
    shared = sum(program.shared for program in programs)
    after = len(os.listdir("/proc/self/task"))
    for program in programs:
        program.close()
    return after - before, shared

added(EngineOptions(threads=1), weights[:1])  # what OpenVINO starts of its own, once
print(added(EngineOptions(threads=1)))
used = _threads.BUDGET.used
many, shared = added(EngineOptions(threads=2, extra={{"workers": used + 16}}))
# Those of earlier models are taken up again, and TBB's pool has as many as the machine has cores.
print(many <= 16 + (os.cpu_count() or 1) and shared >= 16, _threads.BUDGET.used == used)
"""


@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads Linux's /proc")
def test_threads_stay_bounded_whatever_the_number_of_programs() -> None:
    """Two for each model that has its own, within the budget; the others share one model, or the calling thread.

    In a process of its own, since threads of other tests may end meanwhile.
    """
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["(0, 0)", "True True"], done.stdout


FORK = f"""
import gc, os, sys, threading
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np
from backend_graphs import linear
from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import engine

served = engine("openvino")
x, weights = np.ones((512, 256), "float32"), [np.eye(256, dtype="float32"), np.ones(256, "float32")]

def load(threads=2, live=False):
    return served.load(linear(256), weights, EngineOptions(threads=threads, live=live))

programs = [load(), load(1), load(live=True)]
closed = load()
for program in (*programs[:2], closed):
    assert (program.run([x])[0] == 2).all()
closed.close()
del closed, program
stop = threading.Event()

def churn():
    while not stop.is_set():
        load().run([x])
        load(1).run([x])

threads = [threading.Thread(target=churn) for _ in range(int(sys.argv[1]))]
for thread in threads:
    thread.start()
codes = []
for turn in range(4):
    pid = os.fork()
    if not pid:
        stop.set()
        assert "forked" in served.missing() and not any(program.usable() for program in programs)
        for refused in (load, lambda: programs[0].run([x])):
            try:
                refused()
            except EngineError as error:
                assert "forked" in str(error), error
            else:
                os._exit(3)
        programs[0].close()
        del programs[:2], refused
        gc.collect()
        sys.exit(0) if turn % 2 else os._exit(0)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
stop.set()
for thread in threads:
    thread.join()
assert not served.missing() and (programs[0].run([x])[0] == 2).all()
print(codes)
"""


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("busy", [0, 3], ids=["at rest", "while threads load and run"])
def test_a_forked_child_refuses_and_ends(busy: int) -> None:
    """Compiling there, and the destruction of what was inherited, would wait for threads that do not exist."""
    process = subprocess.Popen(
        [sys.executable, "-c", FORK, str(busy)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail("hung: {}\n{}".format(*process.communicate()))
    assert out == f"{[0] * 4}\n", err

"""Attention and convolutions by cuDNN: what is asked of it, on a double that computes from the description alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from fake_cudnn import FakeCudnn
from kernel_cases import _free_model, _held
from native_support import node, sample
from test_native_cublaslt import program_of
from test_native_gpu import check

from hybrid_infer.backends.native import _cudnn, _interpret, _libraries, _nvrtc, _passes

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def attention(
    dtype: str, size: int, masked: bool, laid_out: bool = True, rows: str | int = "t"
) -> tuple[Any, dict[str, Any]]:
    """Heads as linear layers leave them, (batch, tokens, heads, size), or in front of the tokens.

    ``rows``: of the mask, one for each query or one for all.
    """
    nodes, names = [], {name: name for name in "qkv"}
    if laid_out:
        nodes = [node("Transpose", [n], [f"{n}h"], perm=[0, 2, 1, 3]) for n in "qkv"]
        names = {name: f"{name}h" for name in "qkv"}
    nodes += [
        node("Transpose", [names["k"]], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", [names["q"], "kt"], ["s"]),
        *([node("Add", ["s", "mask"], ["u"])] if masked else [node("Identity", ["s"], ["u"])]),
        node("Softmax", ["u"], ["p"], axis=-1),
        node("MatMul", ["p", names["v"]], ["o"]),
        node("Transpose", ["o"], ["y"], perm=[0, 2, 1, 3]) if laid_out else node("Identity", ["o"], ["y"]),
    ]
    shape: tuple[Any, ...] = ("b", "t", 3, size) if laid_out else ("b", 3, "t", size)
    inputs: dict[str, Any] = {name: (dtype, shape) for name in "qkv"}
    feeds = {n: _held(sample([{"b": 2, "t": 5}.get(s, s) for s in shape], i) / 2, dtype) for i, n in enumerate("qkv")}
    if masked:
        inputs["mask"] = (dtype, ("b", 1, rows, "t"))
        feeds["mask"] = _held(np.where(sample((2, 1, 1 if rows == 1 else 5, 5), 9) > 0, 0, -1000), dtype)
    return _passes.plan(_free_model(nodes, inputs, ["y"], {})), feeds


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("masked", ["", "masked", "padded"])
@pytest.mark.parametrize("laid_out", [False, True])
def test_attention(dtype: str, masked: str, laid_out: bool, cudnn: FakeCudnn, cuda: FakeCuda) -> None:
    plan, feeds = attention(dtype, 16, bool(masked), laid_out, 1 if masked == "padded" else "t")
    assert [step.op for step in plan.steps] == ["attention"]
    program, graph = program_of(plan)
    for _ in range(3):
        check(plan, program, graph, feeds)
    assert cudnn.count["execute"] == 2 and not cuda.count["cuLaunchKernel"]  # enqueued once, captured once
    assert cuda.count["cuGraphLaunch"] == 2


def test_attention_between_casts_whose_mask_stays_in_float32(cudnn: FakeCudnn, cuda: FakeCuda) -> None:
    """As ``precision_mode`` and autocast have it: products in half precision, the softmax in float32."""
    nodes = [
        node("MatMul", ["q", "k"], ["s"]), node("Cast", ["s"], ["w"], to=1), node("Add", ["w", "mask"], ["u"]),
        node("Softmax", ["u"], ["p"], axis=-1), node("Cast", ["p"], ["h"], to=10), node("MatMul", ["h", "v"], ["y"]),
    ]  # fmt: skip
    shapes = {"q": (2, 3, 5, 16), "k": (2, 3, 16, 5), "v": (2, 3, 5, 16), "mask": (2, 1, 5, 5)}
    turned = [node("Transpose", ["kt"], ["k"], perm=[0, 1, 3, 2]), *nodes]
    inputs: dict[str, Any] = {n: ("float16", s) for n, s in shapes.items() if n in "qv"}
    inputs.update(kt=("float16", (2, 3, 5, 16)), mask=("float32", shapes["mask"]))
    plan = _passes.plan(_free_model(turned, inputs, ["y"], {}))
    assert [step.op for step in plan.steps] == ["attention"]
    program, graph = program_of(plan)
    feeds = {name: _held(sample(shape, i) / 2, kind) for i, (name, (kind, shape)) in enumerate(inputs.items())}
    feeds["mask"] = np.where(sample(shapes["mask"], 9) > 0, 0, -1e30).astype(np.float32)
    feeds["mask"][..., 0] = 0  # no row is masked whole
    check(plan, program, graph, feeds)
    assert cudnn.count["execute"] == 1 and not cuda.count["cuLaunchKernel"]


@pytest.mark.parametrize(("dtype", "size", "refuses"), [("float16", 12, False), ("float32", 16, False),
                                                        ("float16", 16, True)])  # fmt: skip
def test_what_it_does_not_do_our_own_kernel_does(
    dtype: str, size: int, refuses: bool, cudnn: FakeCudnn, cuda: FakeCuda, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hybrid_infer")
    cudnn.refuses = refuses
    plan, feeds = attention(dtype, size, True)
    program, graph = program_of(plan)
    check(plan, program, graph, feeds)
    assert not cudnn.count["execute"] and cuda.count["cuLaunchKernel"]
    assert ("cuDNN has no attention of float16 for" in caplog.text and "no engine" in caplog.text) == refuses


@pytest.mark.parametrize("leads", [False, True])
def test_engines_that_are_not_the_librarys_own_are_passed_over(
    leads: bool, cudnn: FakeCudnn, cuda: FakeCuda
) -> None:
    """The frontend compiles some by packages that may be there for others, which takes long and wants its workspace."""
    cudnn.engines = [object(), None] if leads else [object()]
    plan, feeds = attention("float16", 16, True)
    program, graph = program_of(plan)
    check(plan, program, graph, feeds)
    assert bool(cudnn.count["execute"]) == leads and bool(cuda.count["cuLaunchKernel"]) != leads


def test_a_workspace_beyond_all_bounds_is_not_taken(cudnn: FakeCudnn, cuda: FakeCuda) -> None:
    cudnn.wants = 1 << 30
    plan, feeds = attention("float16", 16, True)
    program, graph = program_of(plan)
    check(plan, program, graph, feeds)
    assert not cudnn.count["execute"] and cuda.count["cuLaunchKernel"]


def test_a_fault_of_the_binding_costs_the_library_not_the_model(
    cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cudnn, "pygraph", lambda **about: {}["another release"])
    plan, feeds = attention("float16", 16, True)
    program, graph = program_of(plan)
    check(plan, program, graph, feeds)
    assert cuda.count["cuLaunchKernel"] and "another release" in caplog.text


def test_memory_that_it_does_not_get_is_asked_for_again(
    cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next program has the library: what it lacked at the moment was remembered for the life of the process."""
    plan, feeds = attention("float16", 16, True)

    def lacking(*_: Any) -> Any:
        raise RuntimeError("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED")

    with monkeypatch.context() as short:
        short.setattr(_cudnn.Graphs, "_build", lacking)
        program, graph = program_of(plan)
        check(plan, program, graph, feeds)
    assert cuda.count["cuLaunchKernel"] and not cudnn.count["execute"]
    assert "cuDNN computes no attention: RuntimeError: CUDNN_STATUS_INTERNAL_ERROR_DEVICE" in caplog.text
    program, graph = program_of(plan)
    check(plan, program, graph, feeds)
    assert cudnn.count["execute"]


def test_equal_steps_share_what_the_library_was_asked(cudnn: FakeCudnn, cuda: FakeCuda) -> None:
    """Layers that are alike: what is chosen for one is chosen for all, for as long as one of them is kept."""
    nodes = []
    for i, (query, result) in enumerate((("q", "x"), ("x", "z"), ("z", "y"))):
        nodes += [
            node("Transpose", ["k"], [f"kt{i}"], perm=[0, 1, 3, 2]), node("MatMul", [query, f"kt{i}"], [f"s{i}"]),
            node("Softmax", [f"s{i}"], [f"p{i}"], axis=-1), node("MatMul", [f"p{i}", "v"], [result]),
        ]  # fmt: skip
    inputs: dict[str, Any] = {name: ("float16", ("b", 3, "t", 16)) for name in "qkv"}
    plan = _passes.plan(_free_model(nodes, inputs, ["y"], {}))
    assert [step.op for step in plan.steps] == ["attention"] * 3
    program, graph = program_of(plan)
    for tokens, asked in ((5, 1), (7, 2), (5, 2)):
        feeds = {n: _held(sample((2, 3, tokens, 16), i) / 2, "float16") for i, n in enumerate("qkv")}
        check(plan, program, graph, feeds)
        assert cudnn.count["pygraph"] == asked
    program.close()


def test_keys_that_are_cut_to_a_length_which_nothing_else_has_are_not_taken_for_others(
    cudnn: FakeCudnn, cuda: FakeCuda
) -> None:
    """A cache of fixed size is read as far as it is filled: neither its own shape nor the result's tells how far."""
    cut = ["zero", "filled", "axis"]
    nodes = [
        node("Shape", ["positions"], ["filled"]),
        node("Slice", ["k", *cut], ["keys"]), node("Slice", ["v", *cut], ["values"]),
        node("Transpose", ["keys"], ["kt"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1), node("MatMul", ["p", "values"], ["y"]),
    ]  # fmt: skip
    inputs: dict[str, Any] = {"q": ("float16", (2, 3, 1, 16)), "positions": ("int64", ("n",))}
    inputs.update({name: ("float16", (2, 3, 32, 16)) for name in "kv"})
    constants = {"zero": np.array([0]), "axis": np.array([2])}
    plan = _passes.plan(_free_model(nodes, inputs, ["y"], constants))
    assert [step.op for step in plan.steps if step.op != "sizes"] == ["attention"]
    assert _libraries.taken(plan, [_cudnn.Graphs().offer])  # about a sample of that length
    program, graph = program_of(plan)
    cudnn.count.clear()
    for count in (5, 20, 5):
        feeds = {n: _held(sample(inputs[n][1], i) / 2, "float16") for i, n in enumerate("qkv")}
        check(plan, program, graph, {**feeds, "positions": np.arange(count)})
    assert cudnn.count["pygraph"] == 2 and not cuda.count["cuLaunchKernel"]


def test_after_a_capture_the_handle_is_on_a_stream_that_is_there(cudnn: FakeCudnn, cuda: FakeCuda) -> None:
    """It is asked about other sizes then, and about other plans."""
    for size in (16, 24):
        plan, _ = attention("float16", size, False, True)
        program, graph = program_of(plan)
        for tokens in (5, 7):
            feeds = {n: _held(sample((2, tokens, 3, size), i) / 2, "float16") for i, n in enumerate("qkv")}
            for _ in range(2):  # enqueued, captured
                check(plan, program, graph, feeds)
        program.close()
    assert cuda.count["cuStreamBeginCapture_v2"] == 4 and cudnn.count["execute"] == 8
    assert not cuda.destroyed and not cuda.count["cuLaunchKernel"] and cuda.live["stream"] == 1


@pytest.mark.parametrize("bias", [False, True])
def test_convolutions(bias: bool, cudnn: FakeCudnn, cuda: FakeCuda) -> None:
    layout = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 2, 1], "kernel_shape": [3, 2]}
    nodes = [node("Conv", ["x", "w", *(["b"] if bias else [])], ["y"], **layout)]
    shapes: dict[str, Any] = {"x": (2, 8, 9, 7), "w": (16, 8, 3, 2), **({"b": (16,)} if bias else {})}
    plan = _passes.plan(_free_model(nodes, {n: ("float16", s) for n, s in shapes.items()}, ["y"], {}))
    (convolution,) = [step for step in plan.steps if step.op == "Conv"]
    assert convolution.attributes["channels_last"]
    program, graph = program_of(plan)
    feeds = {name: _held(sample(shape, i) / 4, "float16") for i, (name, shape) in enumerate(shapes.items())}
    for _ in range(3):
        check(plan, program, graph, feeds)
    assert cudnn.count["execute"] == 2 and cuda.count["cuLaunchKernel"] == 2 * 3  # the turns


_SPREAD = {"strides": [2, 3], "dilations": [1, 2], "pads": [1, 0, 2, 1], "output_padding": [1, 2]}


@pytest.mark.parametrize(
    ("dtype", "more", "executed"),
    [
        ("float16", {}, 2), ("float32", {}, 2), ("bfloat16", {"pads": [0] * 4}, 2), ("float32", {"group": 2}, 0),
        ("float32", {"strides": [1, 1], "dilations": [2, 2], "output_padding": [1, 1]}, 0),
    ],
)  # fmt: skip
def test_transposed_convolutions(
    dtype: str, more: dict[str, Any], executed: int, cudnn: FakeCudnn, cuda: FakeCuda
) -> None:
    """They are gradients of convolutions; what is added to their channels joins what stands behind them."""
    layout = {**_SPREAD, **more}
    group = layout.get("group", 1)
    nodes = [node("ConvTranspose", ["x", "w", "b"], ["t"], kernel_shape=[3, 2], **layout), node("Relu", ["t"], ["y"])]
    shapes = {"x": (2, 8, 5, 4), "w": (8, 16 // group, 3, 2), "b": (16,)}
    made = _free_model(nodes, {n: (dtype, s) for n, s in shapes.items()}, ["y"], {})
    plan = _passes.plan(made)
    (spread,) = [step for step in plan.steps if step.op == "ConvTranspose"]
    assert spread.attributes.get("channels_last", 0) == (dtype != "float32") and len(spread.inputs) == 2
    program, graph = program_of(plan)
    feeds = {name: _held(sample(shape, i) / 4, dtype) for i, (name, shape) in enumerate(shapes.items())}
    plain = _passes.plan(made, without=tuple(_passes.PASSES))
    loose = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
    for ours, theirs in zip(_interpret.run(plan, feeds), _interpret.run(plain, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=loose, atol=loose)
    for _ in range(3):
        check(plan, program, graph, feeds)
    assert cudnn.count["execute"] == executed


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_lines_are_images_of_one_row(op: str, cudnn: FakeCudnn, cuda: FakeCuda) -> None:
    """As sound is convolved."""
    nodes = [node(op, ["x", "w", "b"], ["y"], strides=[2], pads=[1, 2], dilations=[2], kernel_shape=[4])]
    shapes: dict[str, Any] = {"x": (2, 3, 9), "w": (5, 3, 4) if op == "Conv" else (3, 5, 4), "b": (5,)}
    plan = _passes.plan(_free_model(nodes, {n: ("float32", s) for n, s in shapes.items()}, ["y"], {}))
    program, graph = program_of(plan)
    feeds = {name: sample(shape, i) / 4 for i, (name, shape) in enumerate(shapes.items())}
    for _ in range(3):
        check(plan, program, graph, feeds)
    assert cudnn.count["execute"] == 2


def test_the_binding_takes_transposed_convolutions() -> None:
    if _cudnn.importlib.util.find_spec("cudnn") is None:
        pytest.skip("nvidia-cudnn-frontend is not installed")
    kinds = _cudnn._binding().data_type
    graph = _cudnn._binding().pygraph(
        io_data_type=kinds.HALF, intermediate_data_type=kinds.FLOAT, compute_data_type=kinds.FLOAT
    )
    of = _cudnn._Description(graph, [kinds.HALF] * 3, kinds.FLOAT)
    shapes = [[2, 5, 4, 8], [8, 3, 2, 16], [2, 9, 13, 16]]
    strides = [_cudnn._strides(shape) for shape in shapes]
    assert _cudnn._transposed(of, {**_SPREAD, "channels_last": 1}, shapes, strides)
    graph.validate()


@pytest.mark.parametrize("mask_kind", [lambda kinds: kinds.HALF, lambda kinds: kinds.FLOAT], ids=["half", "float"])
@pytest.mark.parametrize("rows", [5, 1])
def test_the_binding_describes_what_is_asked_of_it(mask_kind: Any, rows: int) -> None:
    if _cudnn.importlib.util.find_spec("cudnn") is None:
        pytest.skip("nvidia-cudnn-frontend is not installed")
    library = _cudnn._binding()
    kinds = library.data_type
    graph = library.pygraph(
        io_data_type=kinds.HALF, intermediate_data_type=kinds.FLOAT, compute_data_type=kinds.FLOAT
    )
    of = _cudnn._Description(graph, [kinds.HALF] * 3 + [mask_kind(kinds), kinds.HALF], kinds.FLOAT)
    at = {"scale": 0.25, "zero_nan": False, "k_turned": False, "order": [0, 2, 1, 3]}
    shapes = [[2, 3, 5, 16], [2, 3, 5, 16], [2, 3, 5, 16], [2, 1, rows, 5], [2, 5, 3, 16]]
    strides = [[240, 16, 48, 1], *(_cudnn._strides(shape) for shape in shapes[1:])]
    assert _cudnn._attention(of, at, shapes, strides)
    graph.validate()


def test_the_compiler_that_it_asks_for_attention_is_loaded_before_a_graph_is_made(
    cudnn: FakeCudnn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds NVRTC 13.0 by itself, but that finds its builtins in a process that has them loaded alone."""
    pygraph, order = cudnn.pygraph, list[str]()

    def noted(**given: Any) -> Any:
        order.append("graph")
        return pygraph(**given)

    monkeypatch.setattr(_nvrtc, "preload", lambda: order.append("compiler"))
    monkeypatch.setattr(cudnn, "pygraph", noted)
    plan, _ = attention("float16", 16, masked=False)
    assert _libraries.taken(plan, [_cudnn.Graphs().offer])
    assert order[0] == "compiler" and "graph" in order

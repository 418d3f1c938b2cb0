"""A convolution takes up the step behind it where cuDNN computes both faster than one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from fake_cuda import FakeCuda, HostMemory
from fake_cudnn import FakeCudnn
from kernel_cases import _free_model, _held
from native_support import node, sample
from test_native_cublaslt import program_of
from test_native_gpu import check, graph_of, options
from test_native_late import Shelf

import hybrid_infer
from hybrid_infer._errors import EngineError, PassingFault
from hybrid_infer.backends.native import _cudnn, _epilogue, _interpret, _libraries, _nvrtc, _passes, gpu

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

#: Seconds of a convolution alone, and with what stands behind it.
FASTER, SLOWER = [10e-6, 8e-6], [10e-6, 11e-6]


def normalised(x: str, y: str, tag: str) -> Any:
    return node("BatchNormalization", [x, *(f"{tag}{name}" for name in ("scale", "bias", "mean", "variance"))], [y])


#: Nodes from `a`, a convolution of `x`, to `y`; `r` is a residual, `c` another convolution, `e` one row for each image.
FORMS: dict[str, list[Any]] = {
    "batch norm, relu": [normalised("a", "b", "n"), node("Relu", ["b"], ["y"])],
    "batch norm, sum, relu": [
        normalised("a", "b", "n"), node("Add", ["b", "r"], ["d"]), node("Relu", ["d"], ["y"]),
    ],
    "sum of two batch norms": [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), normalised("a", "b", "n"), normalised("c", "d", "m"),
        node("Add", ["b", "d"], ["f"]), node("Relu", ["f"], ["y"]),
    ],
    "silu": [node("Sigmoid", ["a"], ["b"]), node("Mul", ["a", "b"], ["y"])],
    "sum, gelu": [node("Add", ["a", "e"], ["b"]), node("Gelu", ["b"], ["y"])],
}  # fmt: skip


def network(form: str, dtype: str = "float16", biased: bool = False, batch: Any = 2) -> tuple[Any, dict[str, Any]]:
    """A model whose convolution `a` has that form behind it, and what to feed."""
    shapes: dict[str, tuple[Any, ...]] = {
        "x": (batch, 8, 5, 6), "w": (16, 8, 3, 3), "v": (16,), "r": (batch, 16, 5, 6), "e": (batch, 16, 1, 1),
    }  # fmt: skip
    shapes |= {f"{tag}{name}": (16,) for tag in "nm" for name in ("scale", "bias", "mean", "variance")}
    nodes = [node("Conv", ["x", "w", *(["v"] if biased else [])], ["a"], pads=[1, 1, 1, 1]), *FORMS[form]]
    read = {name for each in nodes for name in each.input}
    shapes = {name: shape for name, shape in shapes.items() if name in read}
    feeds = {}
    for i, (name, shape) in enumerate(shapes.items()):
        array = sample([2 if size == "b" else size for size in shape], i)
        feeds[name] = _held((abs(array) if "variance" in name else array / 4).astype(np.float32), dtype)
    return _free_model(nodes, {name: (dtype, shape) for name, shape in shapes.items()}, ["y"], {}), feeds


def fused(made: Any) -> Any:
    plan = _passes.plan(made)
    _epilogue.fuse(plan, _epilogue.pairs(plan))
    return plan


def ops(plan: Any) -> list[str]:
    return [step.op for step in plan.steps if step.op in ("Conv", "elementwise")]


@pytest.mark.parametrize(("dtype", "biased"), [("float16", False), ("bfloat16", True)])
@pytest.mark.parametrize("form", FORMS)
def test_one_step_computes_what_two_did(
    form: str, biased: bool, dtype: str, cudnn: FakeCudnn, cuda: FakeCuda
) -> None:
    """By the interpreter and by the library."""
    made, feeds = network(form, dtype, biased)
    plan, apart = fused(made), _passes.plan(made)
    assert ops(plan) == ["Conv"] * ops(apart).count("Conv") and "elementwise" in ops(apart)
    loose = {"float16": 2e-3, "bfloat16": 2e-2}[dtype]
    for ours, theirs in zip(_interpret.run(plan, feeds), _interpret.run(apart, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=loose, atol=loose)
    program, graph = program_of(plan)
    for _ in range(2):
        check(plan, program, graph, feeds)
    assert cudnn.count["execute with more"] == 2


@pytest.mark.parametrize("form", ["sum of two batch norms", "sum, gelu"])
def test_our_own_kernel_computes_it_where_the_library_is_not(form: str, cuda: FakeCuda) -> None:
    made, feeds = network(form, biased=True)
    plan = fused(made)
    program, graph = program_of(plan)
    check(plan, program, graph, feeds)
    assert cuda.count["cuLaunchKernel"]


def test_the_sum_is_not_rounded_in_between(cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """2049 is no number of float16: less 2048 it is 1 of a sum in float32, else 0 or 2."""
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Add", ["a", "r"], ["y"])]
    shapes = {"x": (1, 8, 1, 3), "w": (8, 8, 1, 1), "r": (1, 8, 1, 3)}
    plan = fused(_free_model(nodes, {name: ("float16", shape) for name, shape in shapes.items()}, ["y"], {}))
    feeds = {"x": np.zeros(shapes["x"], "float16"), "w": np.ones(shapes["w"], "float16")}
    feeds |= {"r": np.full(shapes["r"], -2048, "float16")}
    feeds["x"][:, :2] = np.array([1024, 1025]).reshape(1, 2, 1, 1)
    (found,) = _interpret.run(plan, feeds)
    assert (found == 1).all()
    program, graph = program_of(plan)
    check(plan, program, graph, feeds)
    assert cudnn.count["execute with more"]
    monkeypatch.setattr(_libraries, "_opened", {0: []})
    monkeypatch.setattr(_libraries, "_offers", {})
    program, graph = program_of(plan)
    check(plan, program, graph, feeds)


def test_one_kernel_is_compiled_for_all_sizes(cudnn: FakeCudnn, cuda: FakeCuda) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "v"], ["c"], strides=[2, 2]), node("Relu", ["c"], ["y"]),
    ]  # fmt: skip
    shapes = {"x": (2, 8, 5, 6), "w": (16, 8, 3, 3), "v": (8, 16, 1, 1)}
    plan = fused(_free_model(nodes, {name: ("float16", shape) for name, shape in shapes.items()}, ["y"], {}))
    assert len(_libraries.taken(plan, [_cudnn.Graphs().offer])) == 2
    assert (cudnn.count["built with more"], cudnn.count["compiled"]) == (2, 1)


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("size", [8, 512])
def test_small_results_are_asked_for_in_small_tiles(
    size: int, knows: bool, cudnn: FakeCudnn, cuda: FakeCuda
) -> None:
    """Where the library knows the kernel by that number no more, it is asked for its proposals."""
    cudnn.knows_kernels = knows
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Relu", ["a"], ["y"])]
    inputs = {"x": ("float16", (1, 8, size, size)), "w": ("float16", (8, 8, 1, 1))}
    plan = fused(_free_model(nodes, inputs, ["y"], {}))
    assert len(_libraries.taken(plan, [_cudnn.Graphs().offer])) == 1
    assert cudnn.asked == ([(7, {"KERNEL_CFG": 24})] if knows and size == 8 else [])


@pytest.mark.parametrize("form", FORMS)
def test_the_binding_takes_the_description(form: str) -> None:
    """Whether it is a good one only a GPU, or the properties of one, can tell."""
    if _cudnn.importlib.util.find_spec("cudnn") is None:
        pytest.skip("nvidia-cudnn-frontend is not installed")
    library, plan = _cudnn._binding(), fused(network(form, biased=True)[0])
    step = next(step for step in plan.steps if "epilogue" in step.attributes)
    kinds, values = library.data_type, [plan.values[name] for name in (*step.inputs, *step.outputs)]
    graph = library.pygraph(io_data_type=kinds.HALF, intermediate_data_type=kinds.FLOAT, compute_data_type=kinds.FLOAT)
    held = [kinds.FLOAT if value.dtype == "float32" else kinds.HALF for value in values]
    shapes = [list(value.fixed() or ()) for value in values]
    strides = [_cudnn._strides(shape) for shape in shapes]
    assert _cudnn._convolution(_cudnn._Description(graph, held, kinds.FLOAT), step.attributes, shapes, strides)


class Timed:
    """A build on a GPU where nothing is open yet. ``shelf``: where cuDNN's plans, and what was timed, are kept."""

    def __init__(self, made: Any, feeds: dict[str, Any], patch: pytest.MonkeyPatch, shelf: Shelf | None = None) -> None:
        made = onnx.shape_inference.infer_shapes(made, strict_mode=True)
        self.made, self.feeds, self.patch = made, feeds, patch
        self.graph, self.memory = graph_of(made), HostMemory(numpy=True)
        self.shelf = shelf or Shelf()
        self.told = options(self.memory, extra={"cudnn": self.shelf, "kernels": Shelf()})
        self.files: dict[str, bytes] = {}

    def built(self) -> list[str]:
        """Build; what is said of convolutions."""
        self.process()
        self.files = gpu.ENGINE.prepare(self.graph, self.told)
        return [each["why"] for each in gpu.ENGINE.decisions(self.files) if each["rule"] == "convolutions"]

    def served(self) -> None:
        """Load what was built and run it three times: launched, captured, replayed."""
        program = gpu.ENGINE.load(self.graph, [], self.told, self.files)
        for _ in range(3):
            check(_passes.plan(self.made), program, self.graph, self.feeds)
        program.close()

    def process(self) -> None:
        """Another one begins."""
        for name in ("_opened", "_offers"):
            self.patch.setattr(_libraries, name, {})


@pytest.mark.parametrize("form", ["batch norm, sum, relu", "sum of two batch norms"])
def test_the_faster_is_taken_and_told(
    form: str, cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    cudnn.seconds = FASTER
    timed = Timed(*network(form), monkeypatch)
    (said,) = timed.built()
    assert said.startswith("cuDNN computes what stands behind it too (") and said.endswith("), 8.0 us, apart 10.0 us")
    cudnn.count.clear()
    timed.served()
    assert cudnn.count["execute with more"] == 2 and not cuda._capturing
    assert not cuda.live["event"] and not cuda.live["ready graph"]


def test_what_is_no_faster_stays_apart(cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    cudnn.seconds = SLOWER
    timed = Timed(*network("batch norm, relu"), monkeypatch)
    assert timed.built() == ["keeps what stands behind it apart, 10.0 us, as one 11.0 us"]
    cudnn.count.clear()
    timed.served()
    assert cudnn.count["execute"] == 2 and not cudnn.count["execute with more"]


def test_weights_are_read_elsewhere_each_time(
    cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a call, in which they have left the caches since."""
    read: dict[int, set[int]] = {1: set(), 2: set()}
    graph = type(cudnn.pygraph("HALF", "FLOAT", "FLOAT", cudnn.handle))
    run = graph.execute

    def execute(self: Any, pack: dict[int, int], workspace: int, handle: Any) -> None:
        if self.pointwise:
            for place, seen in read.items():
                seen.add(pack[place])
        run(self, pack, workspace, handle)

    monkeypatch.setattr(graph, "execute", execute)
    Timed(*network("batch norm, relu"), monkeypatch).built()
    assert (len(read[1]), len(read[2])) == (1, 8)


def test_another_plan_has_the_same_chosen_and_nothing_timed(
    cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    cudnn.seconds = FASTER
    first = Timed(*network("batch norm, relu"), monkeypatch)
    said = first.built()
    cudnn.count.clear()
    cuda.count.clear()
    cudnn.seconds = SLOWER  # were it timed again, it would choose otherwise
    second = Timed(*network("batch norm, relu"), monkeypatch, first.shelf)
    assert second.built() == said and not cuda.count["cuEventElapsedTime"] and not cudnn.count["built"]
    second.process()
    second.served()
    assert cudnn.count["execute with more"] == 2 and not cudnn.count["built"]


def test_what_the_library_refuses_stays_apart_and_is_not_tried_again(
    cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    cudnn.refuses_more = True
    timed = Timed(*network("batch norm, relu"), monkeypatch)
    (said,) = timed.built()
    assert said.startswith("keeps what stands behind it apart: cuDNN has no kernel for both (")
    timed.served()
    cudnn.refuses_more, cudnn.seconds = False, FASTER
    cudnn.count.clear()
    assert timed.built() == [said] and not cudnn.count["built with more"]
    monkeypatch.setattr(_nvrtc, "version", lambda: "another")  # with which it may compile what it could not
    assert timed.built() != [said] and cudnn.count["built with more"]


def test_what_the_library_refuses_for_want_of_memory_is_tried_again(
    cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was kept beside the plans as refused, for every process and model on that GPU."""
    cudnn.seconds = FASTER
    timed = Timed(*network("batch norm, relu"), monkeypatch)
    build = _cudnn.Graphs._build

    def lacking(self: Any, describe: Any, dtype: Any, wide: Any, at: Any, *more: Any) -> Any:
        if "epilogue" in at:
            raise RuntimeError("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED")
        return build(self, describe, dtype, wide, at, *more)

    with monkeypatch.context() as short:
        short.setattr(_cudnn.Graphs, "_build", lacking)
        (said,) = timed.built()
        assert said.startswith("1 keep the step behind them apart")
        timed.served()
    (said,) = timed.built()
    assert said.startswith("cuDNN computes what stands behind it too (")
    timed.process()
    cudnn.release += 1  # whose plans are none to have back
    with monkeypatch.context() as short:
        short.setattr(_cudnn.Graphs, "_build", lacking)
        with pytest.raises(PassingFault, match="for want of memory"):  # with which the plan is not made anew
            timed.served()
    timed.served()
    assert cudnn.count["execute with more"]


def test_a_plan_that_the_library_does_not_compute_any_more_is_made_anew(
    cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    cudnn.seconds = FASTER
    timed = Timed(*network("batch norm, relu"), monkeypatch)
    timed.built()
    cudnn.refuses_more = True
    cudnn.release += 1
    timed.process()
    with pytest.raises(EngineError, match="with what stands behind it, as the plan has it"):
        timed.served()
    cudnn.count.clear()
    timed.built()
    timed.served()
    assert cudnn.count["execute"] and not cudnn.count["execute with more"]


def test_a_fault_costs_the_choice_alone(
    cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hybrid_infer")
    cudnn.seconds = FASTER
    timed = Timed(*network("batch norm, relu"), monkeypatch)
    timed.memory.limit = 1 << 16  # of memory to time in
    (said,) = timed.built()
    assert said.startswith("1 keep the step behind them apart") and "out of memory" in caplog.text
    timed.memory.limit = None
    timed.served()


def test_one_that_does_not_run_stays_apart(cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    cudnn.seconds = FASTER
    graph = type(cudnn.pygraph("HALF", "FLOAT", "FLOAT", cudnn.handle))
    run = graph.execute

    def execute(self: Any, *given: Any, **more: Any) -> None:
        if self.pointwise:
            raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")
        run(self, *given, **more)

    monkeypatch.setattr(graph, "execute", execute)
    timed = Timed(*network("batch norm, relu"), monkeypatch)
    (said,) = timed.built()
    assert said.startswith("1 keep the step behind them apart")
    timed.served()


def test_what_stands_behind_a_convolution_alone_is_taken_up() -> None:
    """Neither what others read too, nor what is rounded in between, nor float32, nor sizes that a call tells."""

    def found(nodes: list[Any], dtype: str = "float16", outputs: tuple[str, ...] = ("y",), batch: Any = 2) -> int:
        shapes = {"x": (batch, 8, 5, 6), "w": (16, 8, 3, 3)}
        every = [node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), *nodes]
        made = _free_model(every, {name: (dtype, shape) for name, shape in shapes.items()}, list(outputs), {})
        return len(_epilogue.pairs(_passes.plan(made)))

    relu = [node("Relu", ["a"], ["y"])]
    assert found(relu) == 1
    assert found(relu, "float32") == found(relu, outputs=("y", "a")) == found(relu, batch="b") == 0
    assert found([*relu, node("MaxPool", ["a"], ["z"], kernel_shape=[2, 2])], outputs=("y", "z")) == 0
    assert found([node("Floor", ["a"], ["y"])]) == 0
    rounded = [node("Cast", ["a"], ["b"], to=1), node("Exp", ["b"], ["c"]), node("Cast", ["c"], ["y"], to=10)]
    assert found(rounded) == 0


def test_weights_that_change_are_seen(
    on_a_gpu: HostMemory, cudnn: FakeCudnn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read where they lie, as ever: nothing of a batch norm is folded into a kept plan."""
    monkeypatch.setenv("HYBRID_INFER_CACHE_DIR", str(tmp_path))
    cudnn.seconds = FASTER
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU()).eval().half()
    layer[1].running_mean += torch.rand(16)
    x = torch.randn(2, 8, 6, 6).half()
    with torch.no_grad():
        expected = layer(x)
        served = hybrid_infer.inference(layer)
        torch.testing.assert_close(served(x), expected, rtol=4e-3, atol=4e-3)
        layer[1].bias += 1
        torch.testing.assert_close(served(x), layer(x), rtol=4e-3, atol=4e-3)
    assert cudnn.count["execute with more"] and not (layer(x) - expected).abs().max() < 0.5
    assert "cuDNN computes what stands behind it too (" in str(hybrid_infer.explain(served))

"""``precision_mode`` on a GPU, on its double: products of float32 layers in half precision, the rest in float32."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import onnx
import pytest
from fake_cuda import FakeCuda, HostMemory
from gpu_layers import Convolutions, Encoder
from native_support import model, node, ops, sample
from support import served
from test_native_gpu import graph_of, options

import hybrid_infer
from hybrid_infer.backends.native import _interpret, _kernels, _nvrtc, _passes, _plan, gpu

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

compile_cubin, missing = _nvrtc.compile_cubin, _nvrtc.missing  # the real ones, which the double replaces

HALVES = {"float16": 1e-2, "bfloat16": 4e-2}  # the tolerances of verification


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[_plan.Plan]:
    """The plans that were made for the GPU in this test."""
    found: list[_plan.Plan] = []
    prepare = gpu.NativeGpu.prepare

    def noted(self: Any, *arguments: Any) -> dict[str, bytes]:
        files = prepare(self, *arguments)
        found.append(_plan.restore(files[gpu.PLAN], files[gpu.CONSTANTS]))
        return files

    monkeypatch.setattr(gpu.NativeGpu, "prepare", noted)
    return found


def encoder() -> tuple[Any, tuple[Any, ...]]:
    mask = torch.ones(2, 1, 1, 9, dtype=torch.bool)
    mask[1, ..., 5:] = False
    return Encoder(48, 4), (torch.randn(2, 9, 48), mask)


def convolutions() -> tuple[Any, tuple[Any, ...]]:
    return Convolutions(), (torch.randn(2, 3, 16, 16),)


@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("make, products", [(encoder, {"gemm": 6, "attention": 1}), (convolutions, {"Conv": 2})])
def test_a_float32_layer_in_half_precision(
    make: Any, products: dict[str, int], precision: str, on_a_gpu: HostMemory, cuda: FakeCuda, plans: list[_plan.Plan]
) -> None:
    """It errs no more than twice as much as the layer does that is held in that type."""
    torch.manual_seed(0)
    layer, given = make()
    layer.eval()
    kind = getattr(torch, precision)
    with torch.no_grad():
        exact = copy.deepcopy(layer).double()(*(t.double() if t.is_floating_point() else t for t in given))
        eager = copy.deepcopy(layer).to(kind)(*(t.to(kind) if t.is_floating_point() else t for t in given))
        fast = hybrid_infer.inference(layer, precision_mode=precision)
        for _ in range(3):
            found = fast(*given)
    served(captures=1)
    assert found.dtype == torch.float32 and cuda.count["cuGraphLaunch"]
    torch.testing.assert_close(found.double(), exact, rtol=HALVES[precision], atol=HALVES[precision])
    assert (found - exact).abs().max() <= 2 * (eager - exact).abs().max()
    (plan,) = plans
    found_ops = ops(plan)
    assert {name: found_ops[name] for name in products} == products, found_ops
    for step in plan.steps:
        if step.op in products:
            assert {plan.values[name].dtype for name in (*step.inputs[:2], *step.outputs)} == {precision}, step
    assert any(precision in line and "autocast" in line for line in _passes.explain(plan))
    if not missing():
        assert compile_cubin(_kernels.unit(_kernels.kernels(plan).values()), "sm_80", flags=["--Ofast-compile=max"])
    weights = [name for name in plan.inputs if "weight" in name or "bias" in name]
    assert all(plan.values[name].dtype == "float32" for name in weights)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("make", [encoder, convolutions])
def test_a_layer_that_is_held_in_half_precision(make: Any, dtype: str, on_a_gpu: HostMemory, cuda: FakeCuda) -> None:
    """Against float64 on fresh arguments, it errs no more than twice as much as eager does."""
    torch.manual_seed(0)
    layer, given = make()
    kind, exact = getattr(torch, dtype), copy.deepcopy(layer).eval().double()
    layer = layer.eval().to(kind)
    errors = []
    with torch.no_grad():
        fast = hybrid_infer.inference(copy.deepcopy(layer))
        for _ in range(3):
            fresh = [torch.randn_like(t).to(kind) if t.is_floating_point() else t for t in given]
            truth = exact(*(t.double() if t.is_floating_point() else t for t in fresh))
            errors.append([float((run(*fresh).double() - truth).abs().max()) for run in (fast, layer)])
    served(captures=1)
    ours, eager = np.max(errors, axis=0)
    assert ours <= 2 * eager


def test_the_plan_of_another_precision_is_another_one(on_a_gpu: HostMemory, cuda: FakeCuda) -> None:
    keys = {gpu.ENGINE.plan_key(options(on_a_gpu, precision=each)) for each in ("float32", *HALVES)}
    assert len(keys) == 3 and all(map(gpu.ENGINE.native, ("float32", *HALVES)))


def attention(*roundings: int) -> Any:
    """Products in float16 around a softmax in float32, with casts as autocast has them, or others."""
    scores = [node("MatMul", ["q", "k"], ["s"]), *(
        node("Cast", ["s" if not i else f"s{i - 1}"], [f"s{i}"], to=to) for i, to in enumerate(roundings)
    )]  # fmt: skip
    nodes = [
        *scores,
        node("Softmax", [f"s{len(roundings) - 1}"], ["p"], axis=-1),
        node("Cast", ["p"], ["w"], to=10),
        node("MatMul", ["w", "v"], ["y"]),
    ]
    shapes = {"q": (1, 2, 3, 8), "k": (1, 2, 8, 5), "v": (1, 2, 5, 8)}
    return model(nodes, {name: ("float16", shape) for name, shape in shapes.items()}, ["y"])


def test_casts_that_only_widen_are_part_of_attention() -> None:
    feeds = {name: sample(shape, i, "float16") for i, (name, shape) in enumerate(
        (("q", (1, 2, 3, 8)), ("k", (1, 2, 8, 5)), ("v", (1, 2, 5, 8)))
    )}  # fmt: skip
    made = attention(1)
    plan, plain = _passes.plan(made), _passes.plan(made, without=tuple(_passes.PASSES))
    assert ops(plan) == {"attention": 1}
    found, expected = _interpret.run(plan, feeds)[0], _interpret.run(plain, feeds)[0]
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, expected, rtol=2**-8, atol=2**-8)


def test_what_is_rounded_on_purpose_stays_so() -> None:
    """float16 to float32 to bfloat16 to float32: the middle one loses values."""
    assert "attention" not in ops(_passes.plan(attention(1, 16, 1)))


def test_a_model_that_is_held_in_half_precision_is_left_as_it_is(cuda: FakeCuda) -> None:
    made = attention(1)
    files = gpu.ENGINE.prepare(graph_of(made), options(HostMemory(numpy=True), precision="bfloat16"))
    plan = _plan.restore(files[gpu.PLAN], files[gpu.CONSTANTS])
    assert {value.dtype for value in plan.values.values()} == {"float16"}


def test_a_weight_that_is_turned_for_a_product_is_read_as_it_lies() -> None:
    """Rounded, not turned, rounded; one that something else reads turned keeps its own type there."""
    nodes = [
        node("Transpose", ["w"], ["t"], perm=[1, 0]),
        node("MatMul", ["x", "t"], ["p"]),
        node("Transpose", ["v"], ["s"], perm=[1, 0]),
        node("MatMul", ["p", "s"], ["q"]),
        node("Add", ["x", "s"], ["r"]),
    ]
    made = model(nodes, dict.fromkeys(("x", "w", "v"), ("float32", (6, 6))), ["q", "r"])
    lowered = gpu._lowered(onnx.ModelProto.FromString(made.SerializeToString()), graph_of(made, ["w", "v"]), "float16")
    plan = _passes.plan(lowered)
    first, _ = (step for step in plan.steps if step.op in ("gemm", "matmul"))
    assert first.attributes["trans_b"] and ops(plan).get("Transpose", 0) <= 1
    arrays = {name: sample((6, 6), i) + 1 / 3 for i, name in enumerate("xwv")}
    q, r = _interpret.run(plan, arrays)
    exact = arrays["x"].astype(np.float64) @ arrays["w"].T @ arrays["v"].T
    np.testing.assert_allclose(q, exact, rtol=1e-2, atol=1e-2)
    np.testing.assert_array_equal(r, arrays["x"] + arrays["v"].T)

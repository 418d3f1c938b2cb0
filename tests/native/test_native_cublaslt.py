"""Products by cuBLASLt: what is asked of it, on a double that knows its conventions; names, against the binding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_cublaslt import FakeLt
from fake_cuda import FakeCuda, HostMemory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_cases import product_cases
from native_support import model, node, sample
from test_native_gpu import check, graph_of, options

from hybrid_infer._types import TF32, Graph, TensorSpec
from hybrid_infer.backends.native import _build, _cublaslt, _passes, _plan, gpu


def program_of(plan: Any, tf32: TF32 | None = None) -> tuple[Any, Graph]:
    text, blob = _plan.dump(plan)
    specs = [[TensorSpec(plan.values[n].dtype, ()) for n in names] for names in (plan.inputs, plan.outputs)]
    graph = Graph(b"", (), tuple(plan.inputs), tuple(plan.outputs), tuple(specs[0]), tuple(specs[1]))
    files = {gpu.PLAN: text, gpu.CONSTANTS: blob, **_build.build(plan, "sm_90")}
    extra = {} if tf32 is None else {"tf32": tf32}
    return gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True), extra=extra), files), graph


@pytest.mark.parametrize("case", [c for c in product_cases() if c[0].startswith("products")], ids=lambda case: case[0])
def test_products_with_their_epilogues_in_every_type(case: Any, cublaslt: FakeLt) -> None:
    """Turned operands, a bias and an activation, a sum, batches, one matrix for all of a batch; also replayed."""
    _, plan, (feeds,) = case
    program, graph = program_of(plan)
    for _ in range(3):
        check(plan, program, graph, feeds)
    assert cublaslt.count["matmul"] == 2 * 4  # enqueued once, captured once


@settings(
    deadline=None, max_examples=25, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.booleans(), st.booleans(),
    st.sampled_from([(), (2,), (2, 3)]), st.sampled_from([(), (1,), (2,), (1, 1), (2, 1), (2, 3)]),
)  # fmt: skip
def test_every_form_of_product_means_what_numpy_means(
    m: int, n: int, k: int, turn_a: bool, turn_b: bool, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    """The description alone, without kernels: sizes, turns and strides."""
    rank = max(len(left), len(right))
    try:
        batch = np.broadcast_shapes(left, right)
    except ValueError:
        return
    if len(left) != rank or len(right) not in (0, rank):
        return
    a = sample((*left, k, m) if turn_a else (*left, m, k), 1)
    b = sample((*right, n, k) if turn_b else (*right, k, n), 2)
    step = _plan.Step("matmul", ("a", "b"), ("y",), {"trans_a": int(turn_a), "trans_b": int(turn_b)})
    values = {name: _plan.Value("float32", x.shape) for name, x in (("a", a), ("b", b))}
    values["y"] = _plan.Value("float32", (*batch, m, n))
    plan = _plan.Plan(["a", "b"], ["y"], [step], values, {}, 20)
    fake = FakeLt(lambda stream, work: work())
    problem = _cublaslt._problem(plan, step, {})
    partial = any(s == 1 for s in right) and set(right) != {1} and right != batch
    assert (problem is None) == (partial or (left != batch and set(left) != {1} and left != ()))
    if problem is None:
        return
    y = np.empty((*batch, m, n), np.float32)
    made = _cublaslt._Product(fake, 5, problem, step, False)
    assert made.choose()
    made.run([a.ctypes.data, b.ctypes.data, y.ctypes.data], 256, 0)
    x, z = a.swapaxes(-1, -2) if turn_a else a, b.swapaxes(-1, -2) if turn_b else b
    np.testing.assert_allclose(y, x @ z, rtol=1e-5, atol=1e-5)
    del made
    assert not fake._things


def test_what_the_library_does_not_do_our_own_kernel_does(
    cublaslt: FakeLt, cuda: FakeCuda, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hybrid_infer")
    cublaslt.refuses = True
    made = model([node("MatMul", ["x", "w"], ["y"])], {"x": ("float32", ("n", 5)), "w": ("float32", (5, 3))}, ["y"])
    graph = graph_of(made)
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    for n in (4, 0):  # nothing at all is no product either
        check(_passes.plan(made), program, graph, {"x": sample((n, 5)), "w": sample((5, 3), 1)})
    assert not cublaslt.count["matmul"] and cuda.count["cuLaunchKernel"]
    assert "cuBLASLt has no gemm of float32 for" in caplog.text and "not supported" in caplog.text


def test_memory_that_the_library_does_not_get_is_asked_for_again(
    cublaslt: FakeLt, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = model([node("MatMul", ["x", "w"], ["y"])], {"x": ("float32", (4, 5)), "w": ("float32", (5, 3))}, ["y"])
    feeds, graph = {"x": sample((4, 5)), "w": sample((5, 3), 1)}, graph_of(made)

    def lacking(*_: Any) -> Any:
        raise cublaslt.cuBLASLtError("CUBLAS_STATUS_ALLOC_FAILED (3)")

    with monkeypatch.context() as short:
        short.setattr(cublaslt, "matmul_algo_get_heuristic", lacking)
        program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
        check(_passes.plan(made), program, graph, feeds)
    assert not cublaslt.count["matmul"] and cuda.count["cuLaunchKernel"]
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    check(_passes.plan(made), program, graph, feeds)
    assert cublaslt.count["matmul"]


def test_the_binding_has_what_is_used() -> None:
    if _cublaslt.importlib.util.find_spec("nvmath") is None:
        pytest.skip("nvmath-python is not installed")
    from fake_cublaslt import (
        Epilogue,
        MatmulDescAttribute,
        MatmulPreferenceAttribute,
        MatrixLayoutAttribute,
        ReductionScheme,
    )

    lt = _cublaslt._bindings()
    for ours in (Epilogue, MatmulDescAttribute, MatmulPreferenceAttribute, MatrixLayoutAttribute, ReductionScheme):
        theirs = getattr(lt, ours.__name__)
        for each in ours:
            assert int(getattr(theirs, each.name)) == int(each), each
    assert lt.matmul_heuristic_result_dtype == FakeLt.matmul_heuristic_result_dtype
    for name in (n for n in vars(FakeLt) if n.startswith(("matmul_", "matrix_", "create", "get_version"))):
        assert hasattr(lt, name), name

"""Generated kernels: built by the host's compiler and run thread by thread against the interpreter; compiled by NVRTC.

What the host cannot show is speed, and what a GPU's memory model allows that taking turns does not.
"""

from __future__ import annotations

import math
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_cases import Case, operator_cases
from kernel_families import FAMILIES
from kernel_support import COMPILER, build, check_kernels, run_kernel
from native_graphs import GRAPHS
from native_support import model, node
from recurrent_cases import recurrent_cases

from hybrid_infer._errors import EngineError
from hybrid_infer.backends.native import _code, _kernels, _nvrtc, _passes, _size
from hybrid_infer.backends.native._device import Properties
from hybrid_infer.backends.native._geometry import geometry
from hybrid_infer.backends.native._plan import Plan, Step, Value

on_host = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


def _kernels_of(cases: list[Case]) -> dict[str, Any]:
    return {name: kernel for _, plan, _ in cases for name, kernel in _kernels.kernels(plan).items()}


@on_host
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_give_what_the_interpreter_gives(family: str, tmp_path: Path) -> None:
    cases = FAMILIES[family]()
    kernels = _kernels_of(cases)
    library = build(kernels, tmp_path)
    ran = 0
    for name, plan, several in cases:
        for feeds in several:
            loose = 2e-5 if family != "operators" else 1e-5
            try:
                ran += check_kernels(plan, kernels, library, feeds, rtol=loose, atol=1e-6)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error
    assert ran >= len(kernels)


@on_host
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("(x[j] - mean) * scale", "(x[j] + mean) * scale"), ("at = base + c", "at = base"), ("two / (float)", "two * ")],
)
def test_a_wrong_kernel_is_noticed(right: str, wrong: str, tmp_path: Path) -> None:
    (made, feeds), _ = GRAPHS["modulated"]
    plan = _passes.plan(made)
    kernels = _kernels_of([("", plan, [])])
    for kernel in kernels.values():
        assert right in kernel.source
        kernel.source = kernel.source.replace(right, wrong)
    library = build(kernels, tmp_path)
    with pytest.raises(AssertionError):
        check_kernels(plan, kernels, library, feeds)


@on_host
def test_a_kernel_that_asks_for_too_little_shared_memory_is_noticed(tmp_path: Path) -> None:
    name, plan, several = recurrent_cases()[0]
    kernels = _kernels_of([(name, plan, [])])
    library = build(kernels, tmp_path)
    assert check_kernels(plan, kernels, library, several[0])
    for kernel in kernels.values():
        kernel.shared -= 4 * (kernel.shared > 0)
    with pytest.raises(AssertionError, match="beyond the shared memory"):
        check_kernels(plan, kernels, library, several[0])


def test_every_operator_that_bodies_may_hold_has_an_expression() -> None:
    seen = {line[0] for _, plan, _ in operator_cases() for step in plan.steps for line in step.attributes["code"]}
    assert seen == _code.FUSABLE - {"Swish"}  # which is newer than the opset that is captured


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_kernels_compile_for_gpus(family: str, architecture: str) -> None:
    """Every kernel, with the compiler's optimisation at its lowest, which is ten times as fast."""
    if missing := _nvrtc.missing():
        pytest.skip(missing)
    kernels = _kernels_of(FAMILIES[family]())
    cubin = _nvrtc.compile_cubin(_kernels.unit(kernels.values()), architecture, flags=["--Ofast-compile=max"])
    assert cubin[:4] == b"\x7fELF"
    for kernel in kernels.values():
        for entry in kernel.names:
            assert entry.encode() in cubin


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_kernels_compile_as_plans_have_them_compiled(architecture: str) -> None:
    if missing := _nvrtc.missing():
        pytest.skip(missing)
    kernels = _kernels_of(FAMILIES["patterns"]())
    assert _nvrtc.compile_cubin(_kernels.unit(kernels.values()), architecture)[:4] == b"\x7fELF"


def test_what_the_compiler_says_is_the_reason() -> None:
    if missing := _nvrtc.missing():
        pytest.skip(missing)
    with pytest.raises(EngineError, match='identifier "nothing" is undefined'):
        _nvrtc.compile_cubin("__global__ void k() { nothing; }", "sm_90")


def test_what_the_compiler_lacks_is_a_reason_with_the_extra_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"lib/libnvrtc.so.*", "include/cuda_fp16.h", "include/nv/target"}
    monkeypatch.setattr(_nvrtc.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(_nvrtc, "_files", lambda pattern: [Path(pattern)] if pattern in found else [])
    assert not _nvrtc.missing()
    for words, pattern in (
        ("cccl", "include/nv/target"), ("runtime", "include/cuda_fp16.h"), ("nvrtc", "lib/libnvrtc.so.*")
    ):  # fmt: skip
        found.remove(pattern)
        assert words in _nvrtc.missing() and "hybrid_infer[cuda13]" in _nvrtc.missing()
    monkeypatch.setattr(_nvrtc.importlib.util, "find_spec", lambda name: None)
    assert "cuda-bindings" in _nvrtc.missing()

    def version(name: str) -> str:
        if name == "nvidia-cuda-nvrtc":
            raise _nvrtc.metadata.PackageNotFoundError(name)
        return "12.9.86"

    monkeypatch.setattr(_nvrtc.metadata, "version", version)
    assert _nvrtc.version() == "12.9.86"


@pytest.mark.parametrize("release", ["12", "13"])
def test_packages_of_two_releases_of_cuda_lie_side_by_side(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The framework's and ours: the binding's release says which are meant."""
    laid = ("cu13/lib/libnvrtc.so.13", "cu13/include/cuda_fp16.h", "cuda_nvrtc/lib/libnvrtc.so.12",
            "cuda_runtime/include/cuda_fp16.h")  # fmt: skip
    for path in laid:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    spec = ModuleSpec("nvidia", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(_nvrtc.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(_nvrtc.metadata, "version", lambda name: f"{release}.1.0")
    found = [*_nvrtc._files("lib/libnvrtc.so.*"), *_nvrtc._files("include/cuda_fp16.h")]
    assert [str(path.relative_to(tmp_path)) for path in found] == list(laid[:2] if release == "13" else laid[2:])


@pytest.mark.parametrize("op", ["Gather", "Slice", "GatherElements"])
def test_places_in_large_operands_are_counted_in_64_bits(op: str) -> None:
    """However few elements are taken: a table of embeddings, a part of a cache."""
    n, large = _size.atom("dim", "i", 0), (2**18, 2**14)
    values = {
        "x": Value("float16", large), "i": Value("int64", (n,)), "y": Value("float16", (n, large[1])),
        "a": Value("int64", (1,)), "b": Value("int64", (1,)), "c": Value("int64", (1,)),
    }  # fmt: skip
    step, constants = Step(op, ("x", "i"), ("y",), {"axis": 0}), {}
    if op == "Slice":
        values.update(x=Value("float16", (n, *large)), y=Value("float16", (n, large[0], 8)))
        constants = {"a": np.array([16]), "b": np.array([24]), "c": np.array([2])}
        step = Step(op, ("x", *constants), ("y",))
    if op == "GatherElements":
        values.update(i=Value("int64", (n, 1)), y=Value("float16", (n, 1)))
    [kernel] = _kernels.kernels(Plan(["x", "i"], ["y"], [step], values, constants, 20)).values()
    symbols = {("dim", "i", 0): 1}
    assert kernel.entry(symbols)[1]
    # Its grid follows from what is moved.
    found = geometry(kernel, symbols, Properties(9, 0, 132, 232448))
    lanes, elements = max(kernel.entries)[0], {"Gather": 2**14, "Slice": 2**21, "GatherElements": 1}[op]
    assert found.grid * found.block * lanes < elements + found.block * lanes


def test_places_that_rows_name_by_many_numbers_are_counted_in_64_bits() -> None:
    """Those numbers lie side by side: there are more of them than of rows and places together."""
    rows, shape = 2**28, [2] * 9
    values = {"i": Value("int64", (rows, 9)), "ends": Value("int32", (2**9,)), "rows": Value("int32", (rows,))}
    step = Step("grouped", ("i",), ("ends", "rows"), {"shape": shape, "depth": 9, "axis": None})
    [kernel] = _kernels.kernels(Plan(["i"], ["ends", "rows"], [step], values, {}, 20)).values()
    assert kernel.entry({})[1]


@on_host
@pytest.mark.parametrize("op", ["Gelu", "Sigmoid"])
def test_half_precision_is_rounded_to_what_the_exact_value_is(op: str, tmp_path: Path) -> None:
    """All its numbers, by the approximations that results of half precision allow: the nearest or the one beside it."""
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    plan = _passes.plan(model([node(op, ["x"], ["y"])], {"x": ("float16", (2**16,))}, ["y"]))
    kernels = _kernels_of([("", plan, [])])
    [kernel] = kernels.values()
    assert ("hi_normal(x" if op == "Gelu" else "hi_logistic(x") in kernel.source.replace("hi_load(a0.v[j])", "x")
    [entry] = kernel.entries.values()
    [found] = run_kernel(build(kernels, tmp_path), kernel, plan, plan.steps[0], {"x": every}, {}, entry, 64)
    x = every.astype(np.float64)
    with np.errstate(all="ignore"):
        exact = x / 2 * np.vectorize(math.erfc)(-x / math.sqrt(2)) if op == "Gelu" else 1 / (1 + np.exp(-x))
        near = exact.astype(np.float16)
        beside = [np.nextafter(near, np.float16(end)) for end in (-np.inf, np.inf)]
    assert np.array_equal(np.isnan(found), np.isnan(exact))
    right = (found == near) | (found == beside[0]) | (found == beside[1]) | np.isnan(exact)
    assert right.all(), every[~right]

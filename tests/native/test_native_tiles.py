"""Kernels that work in tiles against the interpreter, with threads in every order; their resources; which one serves.

Between two barriers a kernel must give the same whatever order its warps run in, and whether copies are made at once or
as late as they are waited for. The double runs all four, and each synchronisation that is taken out is noticed.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_cases
from kernel_cases import Case, product_cases
from kernel_support import COMPILER, build, check_kernels

from hybrid_infer._errors import EngineError
from hybrid_infer.backends.native import (
    _build,
    _cuda_attention_tiles,
    _cuda_attention_units,
    _cuda_gemm_tiles,
    _kernels,
    _nvrtc,
    _size,
)
from hybrid_infer.backends.native._cuda_access import Kernel
from hybrid_infer.backends.native._device import Properties
from hybrid_infer.backends.native._geometry import geometry
from hybrid_infer.backends.native._plan import Plan, Step, Value

on_host = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

ORDERS = list(itertools.product((0, 1), (0, 1)))

MODULES = (_cuda_gemm_tiles, _cuda_attention_units, _cuda_attention_tiles)

H100 = Properties(9, 0, 132, 232448)


@contextmanager
def every_order(library: ctypes.CDLL) -> Iterator[Iterator[tuple[int, int]]]:
    """Threads forwards and backwards, asynchronous copies at once and as late as may be."""

    def orders() -> Iterator[tuple[int, int]]:
        for order in ORDERS:
            library.hi_schedule(*order)
            yield order

    try:
        yield orders()
    finally:
        library.hi_schedule(0, 0)


def kernels_of(cases: list[Case]) -> dict[str, Kernel]:
    return {name: kernel for _, plan, _ in cases for name, kernel in _kernels.kernels(plan).items()}


def check(cases: list[Case], kernels: Mapping[str, Kernel], library: ctypes.CDLL) -> None:
    with every_order(library) as orders:
        for order in orders:
            for name, plan, [feeds] in cases:
                # Sums of products that cancel each other differ by what their order makes of them.
                atol = 2e-5 if plan.values["y"].dtype in ("float16", "bfloat16") else 2e-6
                try:
                    assert check_kernels(plan, kernels, library, feeds, rtol=2e-5, atol=atol)
                except AssertionError as error:
                    raise AssertionError(f"{name}, order {order}: {error}") from error


def product_plan(m: int, n: int, k: int, dtype: str = "float16", **more: Any) -> Plan:
    at = {"trans_a": 0, "trans_b": 1, **more}
    shapes: dict[str, tuple[Any, ...]] = {"a": (m, k), "b": (n, k) if at["trans_b"] else (k, n), "y": (m, n)}
    return tile_cases.plan_of(Step("gemm", ("a", "b"), ("y",), at), dict.fromkeys(shapes, dtype), shapes, {})


def attention_plan(
    tokens: int, size: int, dtype: str, masked: bool = False, heads: int = 12, outer: int = 0, **more: Any
) -> Plan:
    at = {"scale": 0.125, "zero_nan": False, "k_turned": 0, **more}
    shapes: dict[str, tuple[Any, ...]] = dict.fromkeys(("q", "k", "v", "y"), (1, heads, tokens, size))
    if outer:
        shapes.update(v=(1, heads, tokens, outer), y=(1, heads, tokens, outer))
    names = ("q", "k", "v", "m") if masked else ("q", "k", "v")
    shapes["m"] = (1, 1, tokens, tokens)
    types = dict.fromkeys((*names, "y"), dtype)
    return tile_cases.plan_of(Step("attention", names, ("y",), at), types, shapes, {})


def feeds_of(plan: Plan, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: tile_cases._sample(rng, plan.values[name].fixed(), plan.values[name].dtype) for name in plan.inputs}


@on_host
@pytest.mark.slow
@pytest.mark.parametrize("family", tile_cases.FAMILIES)
def test_tiles_give_what_the_interpreter_gives(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every tiling, those that no GPU would choose for such sizes included, all but the largest for products."""
    for module in MODULES[1:]:
        monkeypatch.setattr(module, "kept", lambda tilings, least=0: tilings)
    cases = tile_cases.FAMILIES[family]()
    kernels = kernels_of(cases)
    assert all(kernel.tilings for kernel in kernels.values())
    check(cases, kernels, build(kernels, tmp_path))


@on_host
def test_a_block_takes_several_tiles_and_the_largest_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cuda_gemm_tiles, "kept", lambda tilings, reserved=0: list(tilings))
    plans = [product_plan(200, 168, 168), product_plan(136, 520, 72, "bfloat16", trans_a=1, trans_b=0)]
    plans[1].values["a"] = Value("bfloat16", (72, 136))
    cases: list[Case] = [(f"case {i}", plan, [feeds_of(plan)]) for i, plan in enumerate(plans)]
    kernels = kernels_of(cases)
    assert [len(kernel.tilings) for kernel in kernels.values()] == [3, 3]
    check(cases, kernels, build(kernels, tmp_path))


#: What orders a kernel's threads, one by one: each is needed, and taken out it is noticed.
PRODUCT = {
    "a slice is awaited": ("hi_wait<STAGES - 2>();", "hi_wait<STAGES - 1>();"),
    "a slice is there for all": ("hi_wait<STAGES - 2>();\n      __syncthreads();", "hi_wait<STAGES - 2>();"),
    "sums are there for all": ("      __syncthreads();\n    }\n    for (int e =", "    }\n    for (int e ="),
    "slices are read before sums are written": ("hi_wait<0>();\n    __syncthreads();", "hi_wait<0>();"),
    "sums are read before the next tile's slices": ("    }\n    __syncthreads();\n  }\n}", "    }\n  }\n}"),
}  # fmt: skip
ATTENTION = {
    "a tile is awaited": ("hi_wait<0>();\n      __syncthreads();", "__syncthreads();"),
    "a tile is there for all": ("hi_wait<0>();\n      __syncthreads();", "hi_wait<0>();"),
    "queries are there for all": ("hi_wait<0>();\n    __syncthreads();", "hi_wait<0>();"),
    "tiles are read before they make room": ("__syncthreads();\n      if (share)", "if (share)"),
    "what another warp found is there": ("__syncthreads();\n      if (!share)", "if (!share)"),
    "results are there for all": ("    __syncthreads();\n    for (int e =", "    for (int e ="),
    "results are read before the next queries": ("    }\n    __syncthreads();\n  }\n}", "    }\n  }\n}"),
}  # fmt: skip
FLOATS = {
    "tiles are read before they are overwritten": ("__syncthreads();  // all have done", "// all have done"),
    "a tile is there for all": ("      __syncthreads();\n      const int rest", "      const int rest"),
    "weights are there for the sixteen": ("__syncwarp();", ""),
    "queries are read before the next": ("    }\n    __syncthreads();\n  }\n}", "    }\n  }\n}"),
}  # fmt: skip
SYNCHRONISATIONS = {"product": PRODUCT, "attention": ATTENTION, "floats": FLOATS}


@on_host
@pytest.mark.parametrize(
    ("kind", "what"),
    [(kind, what) for kind, table in SYNCHRONISATIONS.items() for what in table],
)
def test_a_synchronisation_that_is_missing_is_noticed(
    kind: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in MODULES:
        monkeypatch.setattr(module, "kept", lambda tilings, least=0: tilings)
    table = SYNCHRONISATIONS[kind]
    if kind == "product":
        plan = product_plan(96, 256, 640)
    else:
        plan = attention_plan(270, 64, "float16" if kind == "attention" else "float32", heads=2, outer=40)
    kernels = kernels_of([("", plan, [])])
    right, wrong = table[what]
    for kernel in kernels.values():
        assert right in kernel.source
        kernel.source = kernel.source.replace(right, wrong)
    library = build(kernels, tmp_path)
    with pytest.raises(AssertionError):
        check([("", plan, [feeds_of(plan)])], kernels, library)


def entry_of(plan: Plan, gpu: Properties = H100, **symbols: int) -> str:
    [kernel] = _kernels.kernels(plan).values()
    kernel = Kernel.from_json(kernel.to_json())
    found = geometry(kernel, {("dim", name, 0): size for name, size in symbols.items()}, gpu)
    return found.entry.rpartition("_")[2]


def test_the_tile_follows_the_size_of_the_result() -> None:
    assert entry_of(product_plan(128, 768, 768)) == "t32"
    assert entry_of(product_plan(256, 1152, 1152)) == "t64"
    assert entry_of(product_plan(4096, 4608, 1152)) == "t128"
    plan = product_plan(1, 768, 768)
    rows = _size.atom("dim", "a", 0)
    plan.values.update(a=Value("float16", (rows, 768)), y=Value("float16", (rows, 768)))
    assert [entry_of(plan, a=size) for size in (128, 512, 8192)] == ["t32", "t64", "t128"]
    small = H100._replace(shared=72_000)
    assert entry_of(plan, small, a=8192) == "t32"
    with pytest.raises(EngineError, match="69632 bytes of shared memory for a tile, and 49152"):
        entry_of(plan, H100._replace(shared=49_152), a=8192)


def test_a_tile_that_serves_nowhere_is_not_compiled() -> None:
    [kernel] = _kernels.kernels(product_plan(8192, 4608, 1152)).values()
    assert [each.entry[-4:] for each in kernel.tilings] == ["t128"]


@pytest.mark.parametrize("tokens", [128, 4096])
@pytest.mark.parametrize(
    ("dtype", "gpus"),
    [
        ("float16", [(8, 0, 108, 166_912), (8, 6, 84, 101_376), (8, 9, 142, 101_376), (12, 0, 170, 101_376)]),
        ("float32", [(7, 5, 40, 65_536), (8, 6, 84, 101_376), (9, 0, 132, 232_448)]),
    ],
)
def test_attention_has_a_tiling_that_fits_every_gpu_its_code_may_run_on(
    dtype: str, gpus: list[tuple[int, int, int, int]], tokens: int
) -> None:
    """The longest heads: what serves best on a large GPU asks for more shared memory than a small one can give."""
    for gpu in gpus:
        assert entry_of(attention_plan(tokens, 128, dtype), Properties(*gpu)).startswith("t")


@pytest.mark.parametrize(
    ("plan", "architecture", "expected"),
    [
        (product_plan(64, 64, 64), "sm_90", "on matrix units, in tiles of"),
        (product_plan(64, 64, 64), "sm_75", ""),
        (product_plan(64, 64, 64, "float32"), "sm_90", ""),
        (attention_plan(64, 72, "bfloat16"), "sm_90", "on matrix units, 64 queries a block"),
        (attention_plan(64, 72, "bfloat16"), "sm_75", ""),
        (attention_plan(64, 136, "bfloat16"), "sm_90", ""),
        (attention_plan(64, 72, "float32"), "sm_75", "in float32, 16 queries a block"),
        (attention_plan(64, 72, "float64"), "sm_90", ""),
    ],
)
def test_what_computes_a_step(plan: Plan, architecture: str, expected: str) -> None:
    [kernel] = _kernels.kernels(plan, architecture).values()
    assert (expected in kernel.what) and bool(kernel.what) == bool(kernel.tilings) == bool(expected)


def test_the_plan_says_what_computes_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_nvrtc, "missing", lambda: "")
    monkeypatch.setattr(_nvrtc, "compile_cubin", lambda source, architecture: b"")
    plans = {name: plan for name, plan, _ in product_cases()}
    for dtype, count in (("float16", 1), ("float32", 0)):
        plan = plans[f"products {dtype}"]
        _build.build(plan, "sm_90")
        said = {each["step"] for each in plan.decisions if "on matrix units" in each["why"]}
        assert said == {step.outputs[0] for step in plan.steps if count and step.op in ("gemm", "matmul")}


def frames(cubin: bytes) -> list[int]:
    """Bytes of local memory of each function: what a kernel spills lies there. ELF, sections ``.nv.info``."""
    sections, size, count, names = struct.unpack_from("<Q", cubin, 40)[0], *struct.unpack_from("<HHH", cubin, 58)
    heads = [struct.unpack_from("<IIQQQQ", cubin, sections + i * size) for i in range(count)]
    start = heads[names][4]
    found = []
    for name, _, _, _, offset, length in heads:
        if cubin[start + name :].split(b"\0", 1)[0] != b".nv.info":
            continue
        at = offset
        while at < offset + length:
            kind, what, size = struct.unpack_from("<BBH", cubin, at)
            if kind == 4 and what == 0x11:  # EIATTR_FRAME_SIZE: a symbol, its bytes
                found.append(struct.unpack_from("<II", cubin, at + 4)[1])
            at += 4 + (size if kind == 4 else 0)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_nothing_spills(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what DiT, BERT and ViT need, compiled as plans have it compiled."""
    if missing := _nvrtc.missing():
        pytest.skip(missing)
    for module in MODULES:
        monkeypatch.setattr(module, "kept", lambda tilings, least=0: tilings)
    epilogue = {"activation": "gelu_tanh"}
    plans = [
        product_plan(256, 4608, 1152, **epilogue), product_plan(256, 768, 3072, "bfloat16", trans_b=0, **epilogue),
        attention_plan(256, 72, "float16", zero_nan=True), attention_plan(512, 64, "bfloat16", True),
        attention_plan(197, 64, "float16"), attention_plan(512, 128, "bfloat16", True, zero_nan=True),
        attention_plan(512, 128, "float32", True), attention_plan(197, 64, "float32", zero_nan=True),
    ]  # fmt: skip
    rows = _size.atom("dim", "a", 0)
    plans[1].values.update(a=Value("bfloat16", (rows, 3072)), y=Value("bfloat16", (rows, 768)))
    kernels = kernels_of([("", plan, []) for plan in plans])
    cubin = _nvrtc.compile_cubin(_kernels.unit(kernels.values()), architecture)
    found = frames(cubin)
    assert len(found) >= sum(len(kernel.names) for kernel in kernels.values())
    assert not any(found)
    spilling = _nvrtc.compile_cubin(
        'extern "C" __global__ void k(int* p) { int a[64]; for (int i = 0; i < 64; ++i) a[i] = p[i] * 3;'
        " for (int i = 0; i < 64; ++i) p[i] = a[p[i] & 63]; }", architecture,
    )  # fmt: skip
    assert frames(spilling) == [256]

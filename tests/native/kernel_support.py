"""Generated kernels built by the host's compiler and run on NumPy arrays, block by block and thread by thread."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hybrid_infer.backends.native import _interpret, _kernels, _read, _size, _window
from hybrid_infer.backends.native._cuda_access import Kernel
from hybrid_infer.backends.native._cuda_expressions import STORED
from hybrid_infer.backends.native._plan import NUMPY, Plan, Step

HOST = Path(__file__).with_name("host")
COMPILER = shutil.which("g++") or shutil.which("c++")


def build(kernels: Mapping[str, Kernel], folder: Path) -> ctypes.CDLL:
    """One library with ``launch_<entry>(pointers, numbers, cached, grid, block)`` for each entry point.

    Each source stands in a namespace of its own: kernels share the names of their helpers.
    """
    parts = ['#include "cuda_on_cpu.h"', '#include "cuda_fp16.h"', '#include "cuda_bf16.h"',
             '#include "tensor_cores_on_cpu.h"']  # fmt: skip
    for name, kernel in kernels.items():
        source = "\n".join(line for line in kernel.source.splitlines() if not line.startswith("#include"))
        source = source.replace("extern __shared__ __align__(16) unsigned char hi_shared[];", "")
        parts.append(f"namespace {name} {{\n{source}\n}}")
        for entry in kernel.names:
            arguments = [f"({STORED[dtype]}*)p[{i}]" for i, dtype in enumerate(kernel.pointers)]
            arguments += [f"n[{i}]" for i in range(len(kernel.numbers))]
            arguments += ["cached"] if kernel.cached else []
            together = cluster(kernel.source, entry)
            parts.append(
                f'extern "C" void launch_{entry}(void** p, const long long* n, int cached, int grid, int block) '
                f"{{ launch(grid, block, [=] {{ {name}::{entry}({', '.join(arguments)}); }}, {together}); }}"
            )
    path, library = folder / "kernels.cpp", folder / "kernels.so"
    path.write_text("\n".join(parts))
    assert COMPILER is not None
    flags = ["-std=c++17", "-O0", "-ffp-contract=off", "-fwrapv", "-w", "-shared", "-fPIC", f"-I{HOST}"]
    done = subprocess.run([COMPILER, *flags, str(path), "-o", str(library)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(library))


def cluster(source: str, entry: str) -> int:
    """Blocks that run together, of an entry point of a source."""
    found = re.search(rf"__cluster_dims__\((\d+)\) __launch_bounds__\(\d+(?:, \d+)?\) {entry}\(", source)
    return int(found[1]) if found else 1


#: Bytes on either side of what a kernel is given; of what it reads they are ones, of which floats are NaN.
_FENCE, _READ, _WRITTEN = 256, 0xFF, 0xA5


def stored(array: Any, dtype: str) -> Any:
    """`array` as it lies in a GPU's memory, aligned as vector loads want it."""
    return _fenced(array, dtype, _READ)[0]


def _fenced(array: Any, dtype: str, fence: int) -> tuple[Any, Callable[[], bool]]:
    """The same, and whether what lies beside it is still the fence."""
    if dtype == "bfloat16":
        array = (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    buffer = np.full(array.nbytes + 2 * _FENCE + 16, fence, np.uint8)
    start = _FENCE + -buffer.ctypes.data % 16
    end = start + array.nbytes
    held = buffer[start:end].view(array.dtype).reshape(array.shape)
    held[...] = array
    return held, lambda: bool((buffer[:start] == fence).all() and (buffer[end:] == fence).all())


def loaded(array: Any, dtype: str) -> Any:
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else array


def run_kernel(
    library: ctypes.CDLL, kernel: Kernel, plan: Plan, step: Step, values: Mapping[str, Any],
    symbols: Mapping[Any, int], entry: str, threads: int, cached: bool = False, grid: int = 3,
) -> list[Any]:  # fmt: skip
    """The results of one step, by one of its kernel's entry points."""
    outputs = [name for name in step.outputs if name]
    operands = step.inputs[: len(kernel.pointers) - len(outputs)]
    given = [_fenced(values[name], plan.values[name].dtype, _READ) for name in operands]
    results = [plan.values[name] for name in outputs]
    shapes = [[_size.evaluate(size, symbols) for size in value.shape or ()] for value in results]
    kinds = [value.dtype for value in results]
    made = [
        _fenced(np.full(shape, 77).astype(NUMPY[dtype]), dtype, _WRITTEN)
        for dtype, shape in zip(kinds, shapes, strict=True)
    ]
    arrays, written = ([array for array, _ in part] for part in (given, made))
    held = [*arrays, *written]
    places = [*range(len(arrays)), *range(len(step.inputs), len(step.inputs) + len(written))]
    seen = [_window.windows(step)[place] for place in places]
    starts = [0 if each is None else _size.evaluate(each.start, symbols) for each in seen]
    found = re.search(r"_[il](\d+)w\d+c\d+$", entry)  # of a row: see `_cuda_held_rows`
    lanes = int(found[1]) if found else next((key[0] for key, name in kernel.entries.items() if name == entry), 1)
    for each in seen:
        _check_aligned(each, lanes, symbols)
    first = [a.ctypes.data + start * a.itemsize for a, start in zip(held, starts, strict=True)]
    pointers = (ctypes.c_void_p * len(held))(*first)
    numbers = kernel.arguments(symbols)
    passed = (ctypes.c_longlong * max(len(numbers), 1))(*numbers)
    library.hi_ask(_shared(kernel, entry, cached, symbols))
    getattr(library, f"launch_{entry}")(pointers, passed, int(cached), grid * cluster(kernel.source, entry), threads)
    assert not library.hi_stuck(), "some threads of a block wait for others for ever"
    assert not library.hi_beyond(), "it writes beyond the shared memory that it asks for"
    assert all(whole() for _, whole in (*given, *made)), "it writes beside an array"
    return [loaded(array, dtype) for array, dtype in zip(written, kinds, strict=True)]


def _shared(kernel: Kernel, entry: str, cached: bool, symbols: Mapping[Any, int]) -> int:
    """Bytes of shared memory that a launch asks for."""
    row = kernel.each * _size.evaluate(kernel.width, symbols) if cached or not kernel.cached else 0
    return next((each.shared for each in kernel.tilings if each.entry == entry), kernel.shared + row)


def _check_aligned(window: _window.Window | None, lanes: int, symbols: Mapping[Any, int]) -> None:
    """A GPU faults where several elements are loaded at once from between two vectors; the host does not."""
    if window is None or lanes == 1:
        return
    sizes, strides = ([_size.evaluate(each, symbols) for each in part] for part in window[:2])
    long = [stride for size, stride in zip(sizes, strides, strict=True) if size != 1]
    if long and long[-1] != 0:
        steps = [_size.evaluate(window.start, symbols), *long[:-1]]
        assert all(step % lanes == 0 for step in steps), f"{lanes} elements at once from {steps}"


def check_kernels(plan: Plan, kernels: Mapping[str, Kernel], library: ctypes.CDLL, feeds: Mapping[str, Any],
                  rtol: float = 1e-5, atol: float = 1e-6) -> int:  # fmt: skip
    """Every kernel of a plan, by every entry point that fits, gives what the interpreter gives; how many ran."""
    symbols, values, count = _read.symbols_of(plan, feeds), dict(feeds), 0
    with np.errstate(all="ignore"):
        _interpret._steps(plan, values, symbols)
    for step in plan.steps:
        name = _kernels.name_of(plan, step)
        if name not in kernels:
            continue
        kernel = kernels[name]
        elements = _size.evaluate(kernel.count, symbols)
        for entry, threads in _entries(kernel, symbols):
            for cached in (True, False) if kernel.cached else (False,):
                found = run_kernel(library, kernel, plan, step, values, symbols, entry, threads, cached)
                for output, ours in zip(filter(None, step.outputs), found, strict=True):
                    dtype = plan.values[output].dtype
                    # The rounding of narrow types may fall to either side of a tie.
                    loose = {"float16": 2**-10, "bfloat16": 2**-7}.get(dtype, 0)
                    expected, off = values[output], atol
                    if step.op == "attention" and loose:  # weights are rounded to the type of the values
                        seen = values[step.inputs[2]]
                        off = max(off, loose * float(np.max(np.abs(seen), where=np.isfinite(seen), initial=0)))
                    if step.op == "claims":  # where none holds, whatever was there stays
                        ours = np.where(expected < 0, -1, ours)
                    if step.op == "grouped" and output == step.outputs[1]:  # in any order, those of a place together
                        ours = ours[np.lexsort((ours, np.searchsorted(found[0], np.arange(ours.size), "right")))]
                    if expected.dtype.kind in "iub":
                        np.testing.assert_array_equal(ours, expected)
                    else:
                        np.testing.assert_allclose(ours, expected, rtol=max(rtol, loose), atol=off)
                count += elements >= 0
    return count


def _entries(kernel: Kernel, symbols: Mapping[Any, int]) -> list[tuple[str, int]]:
    """The entry points that serve these sizes, and the threads of a block for each."""
    inner, width = _size.evaluate(kernel.inner, symbols), _size.evaluate(kernel.width, symbols)
    fitting = [key for key in kernel.entries if inner % key[0] == 0 and width % key[0] == 0]
    return [
        *((kernel.entries[key], kernel.threads or 64) for key in fitting),
        *((each.entry, each.threads) for each in kernel.tilings),
    ]

"""CUDA C to cubins, with no GPU and no driver: a plan compiled once is loaded by every process after that."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from hybrid_infer.backends.native._plan import refuse

_REMEDY = "pip install 'hybrid_infer[cuda13]', or [cuda12] for a driver of CUDA 12"

#: The compiler's package, by the release of CUDA: 13, then 12.
_PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")

#: The folders of packages from CUDA 13 on.
_SHARED = re.compile(r"cu\d+$")

#: Kept: NaN and denormals as NumPy has them, exact division and roots; fused multiply-add, which errs less.
_FLAGS = ("--std=c++17", "--fmad=true", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")


def missing() -> str:
    """Why nothing can be compiled here, with the remedy; empty if it can."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return f"the package cuda-bindings is not installed: {_REMEDY}"
    if not _files("lib/libnvrtc.so.*"):
        return f"the package nvidia-cuda-nvrtc is not installed: {_REMEDY}"
    if not _files("include/cuda_fp16.h"):
        return f"the headers of CUDA, nvidia-cuda-runtime, are not installed: {_REMEDY}"
    if not _files("include/nv/target"):  # which those of half precision include
        return f"the headers of CUDA's core libraries, nvidia-cuda-cccl, are not installed: {_REMEDY}"
    return ""


def _files(pattern: str) -> list[Path]:
    """Files of NVIDIA's packages of the binding's release of CUDA: those of another may be there, for a framework.

    From 13 on they share the folder ``nvidia/cu13``; before, each has its own.
    """
    spec, release = importlib.util.find_spec("nvidia"), _release()
    roots = [] if spec is None or spec.submodule_search_locations is None else list(spec.submodule_search_locations)
    found = [(path, folder.name) for root in roots for folder in Path(root).glob("*") for path in folder.glob(pattern)]
    return sorted(path for path, name in found if name == f"cu{release}" or (release < 13 and not _SHARED.match(name)))


def _release() -> int:
    """Of CUDA, of the binding that is installed."""
    with contextlib.suppress(metadata.PackageNotFoundError, ValueError):
        return int(metadata.version("cuda-bindings").partition(".")[0])
    return 13


def version() -> str:
    """The compiler's release, without loading it; empty where it is not installed."""
    for name in _PACKAGES if _release() >= 13 else _PACKAGES[::-1]:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return ""


def lacking(driver: int) -> str:
    """Why nothing can be compiled here that a driver of that release of CUDA loads, with the remedy; empty if it can.

    It is a fault that passes: something is to be installed, here, and other machines may have it.
    """
    return missing() or too_new(version(), driver)


def too_new(compiler: str, driver: int) -> str:
    """Why a driver of that release of CUDA does not load what a compiler made, with the remedy; empty if it does.

    >>> too_new("12.9.86", 13)
    ''
    >>> too_new("13.0.48", 12)[:72]
    "its kernels are compiled by CUDA 13's compiler, and the driver is of CUD"
    """
    release = compiler.partition(".")[0]
    if not release.isdigit() or int(release) <= driver:
        return ""
    other = f", or pip install 'hybrid_infer[cuda{driver}]' in place of the packages of CUDA {release}"
    remedy = "update it" + (other if driver >= 12 else "")
    return f"its kernels are compiled by CUDA {release}'s compiler, and the driver is of CUDA {driver}: {remedy}"


def compile_cubin(source: str, architecture: str, *, flags: Sequence[str] = ()) -> bytes:
    """The cubin of `source` for an architecture such as ``"sm_90"``. Raises EngineError with the compiler's words.

    `flags` are added to those that every kernel is compiled with.
    """
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise refuse(f"the CUDA compiler cannot be loaded: {error}") from error
    preload()
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), b"hybrid_infer.cu", 0, [], []))
    try:
        folders = {path.parent for path in _files("include/cuda_fp16.h")}
        folders |= {path.parent.parent for path in _files("include/nv/target")}
        given = [f"--gpu-architecture={architecture}", *_FLAGS, *flags, *(f"-I{path}" for path in sorted(folders))]
        (code,) = nvrtc.nvrtcCompileProgram(program, len(given), [flag.encode() for flag in given])
        if int(code):
            log = b" " * _checked(nvrtc, nvrtc.nvrtcGetProgramLogSize(program))
            nvrtc.nvrtcGetProgramLog(program, log)
            raise refuse(" ".join(log.rstrip(b"\0").decode().split()))
        cubin = b" " * _checked(nvrtc, nvrtc.nvrtcGetCUBINSize(program))
        _checked(nvrtc, nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)


@lru_cache(maxsize=1)
def preload() -> None:
    """Load the compiler from where its package lies, wherever that was installed; else whoever wants it looks for it.

    First what it opens by name where it compiles: that of 13.0 looks for this everywhere but beside itself. What cannot
    be loaded may not be needed: the compiler will say so.
    """
    for pattern in ("lib/libnvrtc-builtins.so.*", "lib/libnvrtc.so.*"):
        for path in _files(pattern)[:1]:
            with contextlib.suppress(OSError):
                ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def _checked(nvrtc: Any, result: Any) -> Any:
    if int(result[0]):
        raise refuse(nvrtc.nvrtcGetErrorString(result[0])[1].decode())
    return result[1] if len(result) == 2 else None

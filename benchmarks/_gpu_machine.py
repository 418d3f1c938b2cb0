"""On which GPU is measured, with which packages, and why it cannot be."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from benchmarks._measure import REPOSITORY

PACKAGES = (
    "hybrid_infer", "torch", "triton", "transformers", "nvmath-python", "nvidia-cudnn-frontend", "nvidia-cuda-nvrtc",
    "nvidia-cuda-cccl", "nvidia-cublas", "cuda-bindings",
)  # fmt: skip


def missing() -> str:
    """Why nothing can be measured here; empty if it can. Without a compiler it would be eager that is measured."""
    from hybrid_infer.backends.native import _driver, _nvrtc

    if reason := _driver.missing():
        return reason
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    if not torch.cuda.is_available():
        return "PyTorch was built without CUDA, or finds no GPU"
    return _nvrtc.lacking(_driver.launcher().cuda())


def libraries() -> dict[str, str]:
    """Of each library that the native engine computes by where it is installed, why it cannot; empty if it can."""
    from hybrid_infer.backends.native import _cublaslt, _cudnn

    return {"cuBLASLt": _cublaslt.missing(), "cuDNN": _cudnn.missing()}


def machine() -> dict[str, Any]:
    """Device, driver and versions."""
    import torch

    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    except (OSError, subprocess.CalledProcessError) as error:
        told = [f"nvidia-smi says nothing: {error}"]
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "device": f"{properties.name}, sm_{properties.major}{properties.minor}, "
                  f"{properties.multi_processor_count} multiprocessors",
        "driver": told, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "versions": versions,
        "libraries": libraries(), "sources": sources(), "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def sources() -> str:
    """The commit of the sources that are measured, as far as it is known."""
    query = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"]
    try:
        return "commit " + subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "sources of no known commit"


def described(told: Mapping[str, Any]) -> str:
    """`machine` in words."""
    versions = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
    lines = [
        f"{told['device']}; driver {'; '.join(told['driver'])}; CUDA {told['cuda']}; cuDNN {told['cudnn']}; "
        f"{told['date']}", versions,
        *(f"without {name}: {reason}" for name, reason in told["libraries"].items() if reason),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def unready(own_kernels: bool) -> str:
    """Why nothing is to be measured, before anything is; `own_kernels`: the libraries may be missing."""
    if reason := missing():
        return reason
    lacking = [f"the native engine would compute without {name}: {why}" for name, why in libraries().items() if why]
    return "" if own_kernels or not lacking else "; ".join([*lacking, "--own-kernels measures it all the same"])

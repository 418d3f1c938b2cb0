"""On which GPU is measured, with which packages, and why it cannot be."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from importlib import metadata
from typing import Any

PACKAGES = (
    "hybrid_infer", "torch", "nvmath-python", "nvidia-cudnn-frontend", "nvidia-cuda-nvrtc", "cuda-bindings",
    "cupy-cuda13x", "cupy-cuda12x",
)  # fmt: skip


def missing() -> str:
    """Why nothing can be measured here; empty if it can."""
    from hybrid_infer.backends.native import _driver

    if reason := _driver.missing():
        return reason
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    return "" if torch.cuda.is_available() else "PyTorch was built without CUDA, or finds no GPU"


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
        "driver": told, "cuda": torch.version.cuda, "versions": versions,
        "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def described(told: Mapping[str, Any]) -> str:
    """`machine` in words."""
    versions = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
    return f"{told['device']}; driver {'; '.join(told['driver'])}; CUDA {told['cuda']}; {told['date']}\n{versions}\n"

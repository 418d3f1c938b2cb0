"""Plans of cuDNN's that are kept: had back by the next process, and built as ever where they are not taken back."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_cuda import FakeCuda, HostMemory
from fake_cudnn import FakeCudnn, _Graph
from kernel_cases import _held
from native_support import model, node, sample
from test_native_gpu import check, graph_of, options
from test_native_late import Shelf

import hybrid_infer
from hybrid_infer._errors import EngineError
from hybrid_infer.backends.native import _cudnn, _cudnn_plans, _libraries, _parts, _passes, gpu

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SHAPE = (2, 3, 5, 16)


class Process:
    """One that builds attention, on a GPU where nothing is open yet; what it found, and what it built.

    `meanwhile`: what happens once they are loaded, before they run.
    """

    def __init__(
        self, cudnn: FakeCudnn, patch: pytest.MonkeyPatch, shelf: Shelf, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        for name in ("_opened", "_offers"):
            patch.setattr(_libraries, name, {})
        cudnn.count.clear()
        nodes = [
            node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "t"], ["s"]),
            node("Softmax", ["s"], ["p"], axis=-1), node("MatMul", ["p", "v"], ["y"]),
        ]  # fmt: skip
        made = model(nodes, {name: ("float16", SHAPE) for name in "qkv"}, ["y"])
        graph, told = graph_of(made), options(HostMemory(numpy=True), extra={"cudnn": shelf, "kernels": Shelf()})
        program = gpu.ENGINE.load(graph, [], told)
        meanwhile()
        for seed in range(3):  # launched, captured, replayed
            feeds = {name: _held(sample(SHAPE, seed + i) / 2, "float16") for i, name in enumerate("qkv")}
            check(_passes.plan(made), program, graph, feeds)
        assert cudnn.count["execute"] == 2
        self.built, self.back = cudnn.count["built"], cudnn.count["taken back"]
        program.close()


def test_what_a_process_built_the_next_one_has_back(
    cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one too runs what it was given back: that is what was compared with the eager method's results."""
    shelf = Shelf()
    first = Process(cudnn, monkeypatch, shelf)
    assert (first.built, first.back, shelf.updates) == (1, 1, 1)
    second = Process(cudnn, monkeypatch, shelf)
    assert (second.built, second.back, shelf.updates) == (0, 1, 1)


@pytest.mark.parametrize("what", ["release", "GPU", "driver", "multiprocessors", "TF32", "description"])
def test_a_plan_is_for_what_it_was_built_for(
    what: str, cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hybrid_infer")
    shelf = Shelf()
    Process(cudnn, monkeypatch, shelf)
    if what == "release":
        cudnn.release += 1
    elif what == "GPU":
        cuda.name = b"Another"
    elif what == "driver":
        cuda.version = 14000
    elif what == "multiprocessors":
        cuda.attributes[16] += 1
    elif what == "description":
        monkeypatch.setattr(_cudnn, "_FORMAT", 0)
    else:
        kept = _cudnn_plans.Kept(shelf, "")
        assert kept.key([1, True]) != kept.key([1, False])
        return
    assert Process(cudnn, monkeypatch, shelf).built == 1
    assert Process(cudnn, monkeypatch, shelf).built == 0
    assert not [record for record in caplog.records if record.levelno > logging.INFO or "cuDNN" in record.message]


def test_what_is_not_taken_back_is_built_without_noise_and_kept_no_more(
    cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hybrid_infer")
    shelf = Shelf()
    Process(cudnn, monkeypatch, shelf)
    cudnn.takes_back = False
    assert Process(cudnn, monkeypatch, shelf).built == 1
    assert not [record for record in caplog.records if "cuDNN" in record.message]
    cudnn.takes_back = True
    again = Process(cudnn, monkeypatch, shelf)
    assert (again.built, again.back) == (1, 0)  # what one process could not have back none tries


def test_what_is_not_taken_back_for_want_of_memory_is_tried_again(
    cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next process: it was kept that the plan is none to have back, and each process built it anew."""
    shelf = Shelf()
    graph = type(cudnn.pygraph("HALF", "FLOAT", "FLOAT", cudnn.handle))

    def lacking(*_: Any) -> Any:
        raise RuntimeError("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED")

    with monkeypatch.context() as short:
        short.setattr(graph, "deserialize", lacking)
        assert Process(cudnn, short, shelf).built == 1
    assert Process(cudnn, monkeypatch, shelf).built == 1
    assert Process(cudnn, monkeypatch, shelf).built == 0
    with monkeypatch.context() as short:
        short.setattr(graph, "deserialize", lacking)
        assert Process(cudnn, short, shelf).built == 1
    assert Process(cudnn, monkeypatch, shelf).built == 0


def test_a_library_that_writes_no_plans_is_asked_as_ever(
    cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    cudnn.writes, shelf = False, Shelf()
    for _ in range(2):
        made = Process(cudnn, monkeypatch, shelf)
        assert (made.built, made.back) == (1, 0)
    assert shelf.updates == 1  # that it does not


@pytest.mark.parametrize("later", [False, True])
def test_a_plan_that_was_taken_back_and_does_not_run_is_built(
    later: bool, cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf()
    if later:
        Process(cudnn, monkeypatch, shelf)
    cudnn.runs_taken_back = False
    made = Process(cudnn, monkeypatch, shelf)
    assert (made.built, made.back) == ((1, 1) if later else (2, 1))


def test_a_plan_that_is_built_anew_and_wants_more_workspace_does_not_run(
    cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arena was laid out for the other's: what it has no room for must not write there."""
    shelf = Shelf()
    Process(cudnn, monkeypatch, shelf)

    def more() -> None:
        cudnn.runs_taken_back, cudnn.wants = False, 1024

    with pytest.raises(EngineError, match="CUDNN_STATUS_EXECUTION_FAILED"):
        Process(cudnn, monkeypatch, shelf, more)
    assert not cudnn.count["execute"]


def test_a_plan_is_kept_where_one_that_is_built_does_not_run_either(
    cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not the plan: what the GPU computed earlier failed, or a graph that is captured is spoilt."""
    shelf = Shelf()
    Process(cudnn, monkeypatch, shelf)
    with monkeypatch.context() as patch:

        def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")

        with pytest.raises(EngineError, match="CUDNN_STATUS_EXECUTION_FAILED"):
            Process(cudnn, monkeypatch, shelf, lambda: patch.setattr(_Graph, "execute", fail))
        _libraries.flush_plans(0)
    made = Process(cudnn, monkeypatch, shelf)
    assert (made.built, made.back) == (0, 1)


@pytest.mark.parametrize("spoil", [
    lambda data: data[:-1], lambda data: data[:-1] + b"?", lambda data: b"\xff\n", lambda data: b"nothing",
    lambda data: b"[[1, 2]]\n", lambda data: b"[" * 100_000 + b"\n", lambda data: b"\n", lambda data: b"",
])  # fmt: skip
def test_a_shelf_that_is_damaged_costs_the_plans_alone(
    spoil: Callable[[bytes], bytes], cudnn: FakeCudnn, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Shelf()
    plans = _cudnn_plans.Kept(kept, "a GPU")
    for name in ("a", "b"):
        plans.put(name, f"plan {name}".encode())
    plans.flush()
    kept.data = spoil(kept.data)
    found = _cudnn_plans.Kept(kept, "a GPU")
    assert found.get("a") in (None, b"plan a") and found.get("b") is None
    found.put("b", b"plan again")
    found.flush()
    assert _cudnn_plans.Kept(kept, "a GPU").get("b") == b"plan again"


def test_a_shelf_keeps_the_newest_and_what_others_wrote_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cudnn_plans, "LIMIT", 12)
    kept = Shelf()
    plans, others = _cudnn_plans.Kept(kept, ""), _cudnn_plans.Kept(kept, "")
    assert plans.get("a") is None and others.get("b") is None
    for number, (writer, name) in enumerate(((plans, "a"), (others, "b"), (plans, "c"))):
        writer.put(name, b"12345%d" % number)
        writer.flush()
    now = _cudnn_plans.Kept(kept, "")
    assert [now.get(name) for name in "abc"] == [None, b"123451", b"123452"]
    assert plans.get("a") == b"123450"  # which this process need not read again
    for _ in range(2):
        plans.flush()
    assert kept.updates == 3


def test_a_process_holds_no_more_than_the_shelf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of ever other sizes, and the names of ever other plans that are not taken back, would fill both."""
    monkeypatch.setattr(_cudnn_plans, "LIMIT", 12)
    monkeypatch.setattr(_parts, "COUNT", 3)
    for data, last in ((b"123456", 2), (b"", 3)):
        kept = Shelf()
        plans = _cudnn_plans.Kept(kept, "")
        for name in "abcdef":
            assert plans.get(name) is None
            plans.put(name, data)
            plans.flush()
        for each in (plans, _cudnn_plans.Kept(kept, "")):
            held = [name for name in "abcdef" if each.get(name) is not None]
            assert held == list("abcdef"[-last:])


def attend(q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def test_a_store_keeps_them(
    on_a_gpu: HostMemory, cudnn: FakeCudnn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYBRID_INFER_CACHE_DIR", str(tmp_path))
    given = [torch.randn(SHAPE).half() for _ in range(3)]
    with torch.no_grad():
        hybrid_infer.inference(attend)(*given)
    [kept] = tmp_path.rglob("native-cudnn.cache")
    [part] = _parts.read(kept.read_bytes()).values()
    assert zlib.decompress(part.data) == b"plan 0" and cudnn.count["taken back"] == 1

"""What a cold build costs, in counts: what is compiled where libraries compute, and when they refuse later, once.

Kernels that the compiler was given, on the doubles of a GPU and of cuBLASLt.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_cublaslt import FakeLt
from fake_cuda import FakeCuda, HostMemory
from native_support import model, node, sample
from test_native_gpu import check, graph_of, options

from hybrid_infer._errors import EngineError, PassingFault
from hybrid_infer.backends.native import _cublaslt, _kernels, _libraries, _nvrtc, _parts, _passes, _plan, gpu


class Shelf:
    def __init__(self) -> None:
        self.data, self.updates = b"", 0

    def read(self) -> bytes:
        return self.data

    def update(self, merge: Callable[[bytes], bytes]) -> None:
        self.data, self.updates = merge(self.data), self.updates + 1


@pytest.fixture
def compiled(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The kinds of the kernels that were compiled, sorted; emptied by who has looked."""
    found: list[str] = []
    compiler = _nvrtc.compile_cubin

    def compile_cubin(source: str, architecture: str, *, flags: Any = ()) -> bytes:
        found.extend(re.findall(r"^namespace ([a-z]+)_", source, re.MULTILINE))
        found.sort()
        return compiler(source, architecture, flags=flags)

    monkeypatch.setattr(_nvrtc, "compile_cubin", compile_cubin)
    yield found


def chain(rows: Any = 4) -> Any:
    """Three equal products with a bias and something between them that no library computes."""
    nodes, last = [], "x"
    for i in range(3):
        nodes += [node("MatMul", [last, f"w{i}"], [f"p{i}"]), node("Tanh", [f"p{i}"], [f"t{i}"])]
        last = f"t{i}"
    shapes: dict[str, Any] = {"x": ("float32", (rows, 8)), **{f"w{i}": ("float32", (8, 8)) for i in range(3)}}
    return model(nodes, shapes, [last])


def feeds(rows: int = 4, seed: int = 0) -> dict[str, Any]:
    return {"x": sample((rows, 8), seed), **{f"w{i}": sample((8, 8), i + 1) / 3 for i in range(3)}}


def planned() -> tuple[Shelf, Any, Any, Any]:
    """A plan of `chain`, made where a library computes: its shelf, what the engine was told, the graph, its files."""
    shelf = Shelf()
    told, graph = options(HostMemory(numpy=True), extra={"kernels": shelf}), graph_of(chain())
    return shelf, told, graph, gpu.ENGINE.prepare(graph, told)


def taken(found: list[str]) -> list[str]:
    """What was compiled since this was last asked."""
    kinds = list(found)
    found.clear()
    return kinds


def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on there is no library, as on another machine."""
    monkeypatch.setattr(_libraries, "_opened", {})
    monkeypatch.setattr(_libraries, "_offers", {})
    monkeypatch.setattr(_cublaslt, "missing", lambda: "it is not installed")


def test_what_a_compiler_or_a_library_raises_is_a_fault_of_the_engine_that_passes(
    cublaslt: FakeLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the caller's: other engines, or the eager method, answer. So it is for whatever a binding may raise."""
    for place, name in ((_nvrtc, "compile_cubin"), (_libraries, "offers")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, _raising)
            with pytest.raises(PassingFault, match="Failure finding libnvrtc"):
                planned()


def _raising(*given: Any, **named: Any) -> Any:
    raise RuntimeError("Failure finding libnvrtc")


def test_what_a_library_computes_is_not_compiled(cublaslt: FakeLt, compiled: list[str]) -> None:
    _, told, graph, files = planned()
    assert taken(compiled) == ["elementwise"]
    assert any("1 of them are compiled only where no library" in each["why"] for each in gpu.ENGINE.decisions(files))
    program = gpu.ENGINE.load(graph, [], told, files)
    for _ in range(2):
        check(_passes.plan(chain()), program, graph, feeds())
    assert not compiled and not told.extra["kernels"].updates and cublaslt.count["matmul"] == 2 * 3


def test_equal_steps_and_kernels_are_asked_for_and_compiled_once(
    cublaslt: FakeLt, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three products the library is asked about one, by the build, the load and the call together.

    It is asked for its choice, and once for several, of which the fastest would be taken.
    """
    asked, ask = [], cublaslt.matmul_algo_get_heuristic
    monkeypatch.setattr(cublaslt, "matmul_algo_get_heuristic", lambda *given: (asked.append(given), ask(*given))[1])
    told, graph = options(HostMemory(numpy=True), extra={"kernels": Shelf()}), graph_of(chain())
    program = gpu.ENGINE.load(graph, [], told, gpu.ENGINE.prepare(graph, told))
    check(_passes.plan(chain()), program, graph, feeds())
    assert [given[7] for given in asked] == [1, 8]
    # With nothing that keeps what is compiled later, a plan is whole; of its six steps two kernels are distinct.
    taken(compiled)
    gpu.ENGINE.prepare(graph, options(HostMemory(numpy=True)))
    assert taken(compiled) == ["elementwise", "gemm"]


def test_without_the_library_its_kernels_are_compiled_once_for_all_processes(
    cublaslt: FakeLt, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, told, graph, files = planned()
    absent(monkeypatch)
    taken(compiled)
    program = gpu.ENGINE.load(graph, [], told, files)
    assert taken(compiled) == ["gemm"] and shelf.updates == 1
    check(_passes.plan(chain()), program, graph, feeds())
    monkeypatch.setattr(_nvrtc, "missing", lambda: "there is no compiler")
    check(_passes.plan(chain()), gpu.ENGINE.load(graph, [], told, files), graph, feeds(seed=7))
    assert not compiled and not cublaslt.count["matmul"]


def test_without_library_and_compiler_the_reason_is_said_where_it_is_loaded(
    cublaslt: FakeLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, told, graph, files = planned()
    absent(monkeypatch)
    monkeypatch.setattr(_nvrtc, "missing", lambda: "there is no compiler")
    with pytest.raises(EngineError, match=r"no library computes gemm here.*there is no compiler"):
        gpu.ENGINE.load(graph, [], told, files)


def test_sizes_that_are_refused_at_a_call_compile_what_they_need(cublaslt: FakeLt, compiled: list[str]) -> None:
    shelf, made = Shelf(), chain("n")
    told, graph, plan = options(HostMemory(numpy=True), extra={"kernels": shelf}), graph_of(made), _passes.plan(made)
    files = gpu.ENGINE.prepare(graph, told)
    assert taken(compiled) == ["elementwise"]
    program, again = (gpu.ENGINE.load(graph, [], told, files) for _ in range(2))
    check(plan, program, graph, feeds(5))
    check(plan, program, graph, feeds(0))  # nothing is to be launched
    assert not compiled and cublaslt.count["matmul"] == 3
    cublaslt.refuses = True
    for rows in (6, 7, 6):
        check(plan, program, graph, feeds(rows))
    assert taken(compiled) == ["gemm"] and shelf.updates == 1
    check(plan, program, graph, feeds(5))
    check(plan, again, graph, feeds(6))  # a program that has compiled nothing finds it
    assert not compiled and cublaslt.count["matmul"] == 6


def test_a_shelf_that_is_damaged_costs_time_alone(
    cublaslt: FakeLt, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, told, graph, files = planned()
    absent(monkeypatch)
    gpu.ENGINE.load(graph, [], told, files)
    whole = shelf.data
    for damaged in (whole[:-1], whole.replace(whole[-3:], b"???"), b"{}\n", b"[[1, 2]]\n", b"\xff\n", b"nothing"):
        shelf.data = damaged
        taken(compiled)
        program = gpu.ENGINE.load(graph, [], told, files)
        assert taken(compiled) == ["gemm"]
        check(_passes.plan(chain()), program, graph, feeds())
        (kept,) = _parts.read(shelf.data).values()
        assert kept.whole() is not None


def test_a_shelf_keeps_the_newest() -> None:
    data = b""
    for i in range(5):
        data = _parts.written(_parts.newest({str(i): bytes([i]) * 4}, _parts.read(data), 10))
    assert {key: part.whole() for key, part in _parts.read(data).items()} == {"4": b"\4" * 4, "3": b"\3" * 4}


def test_a_part_that_is_too_large_leaves_the_others_where_they_are() -> None:
    others = _parts.newest({"a": b"a", "b": b"bb"}, {}, 10)
    assert _parts.newest({"c": b"c" * 11}, others, 10) == others


def test_parts_that_were_kept_are_read_by_later_releases() -> None:
    """The bytes on the disk, written out: whoever changes them changes the name of the file too."""
    head = [[name, hashlib.sha256(name.encode()).hexdigest(), 1] for name in "ab"]
    data = json.dumps(head).encode() + b"\nab"
    parts = _parts.read(data)
    assert {key: part.whole() for key, part in parts.items()} == {"a": b"a", "b": b"b"}
    assert _parts.written(parts) == data


def test_a_decorated_layer_finds_them_in_the_store(
    on_a_gpu: HostMemory, cublaslt: FakeLt, compiled: list[str], monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    torch = pytest.importorskip("torch")
    import hybrid_infer

    def layer() -> Any:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Tanh())

    x, seen = torch.randn(4, 8), []
    with torch.no_grad():
        expected = layer()(x)
        for i in range(3):
            fast = hybrid_infer.inference(layer().eval())
            torch.testing.assert_close(fast(x), expected)
            seen.append(taken(compiled))
            hybrid_infer.release(fast)
            if not i:
                absent(monkeypatch)
    assert seen == [["elementwise"], ["gemm"], []]


def test_known_sizes_are_compiled_for_alone() -> None:
    """Width of loads and of indices follow from them; where they are open, each that may be needed is compiled."""
    several = {}
    for rows in (4, "n"):
        nodes = [
            node("LayerNormalization", ["x", "g"], ["h"], axis=-1), node("Transpose", ["h"], ["t"], perm=[1, 0]),
            node("Tanh", ["t"], ["u"]), node("Softmax", ["u"], ["s"], axis=-1), node("MatMul", ["s", "x"], ["y"]),
        ]  # fmt: skip
        plan = _passes.plan(model(nodes, {"x": ("float16", (rows, 24)), "g": ("float16", (24,))}, ["y"]))
        kernels = _kernels.kernels(plan, "sm_90")
        several[rows] = {name.partition("_")[0]: len(kernel.names) for name, kernel in kernels.items()}
    assert {"row", "transpose"} <= set(several[4]) and set(several[4].values()) == {1}
    assert several["n"]["row"] > 1 and several["n"]["transpose"] > 1


def test_planning_looks_for_readers_only_where_a_rule_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change of a plan makes a finder anew; in long plans finding all readers is what takes the time."""
    looked, uses = [], _plan.Plan.uses
    monkeypatch.setattr(_plan.Plan, "uses", lambda self: (looked.append(self), uses(self))[1])
    nodes = [node("Transpose", [f"t{i}"], [f"t{i + 1}"], perm=[1, 0]) for i in range(8)]
    made = _passes.plan(model([*nodes, node("Tanh", ["t8"], ["y"])], {"t0": ("float32", (3, 4))}, ["y"]), without=(
        *(name for name in _passes.PASSES if name != "views"),
    ))  # fmt: skip
    assert [step.op for step in made.steps] == ["Tanh"] and not looked

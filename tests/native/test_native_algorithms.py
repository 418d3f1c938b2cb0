"""Of the algorithms that cuBLASLt proposes for a product the fastest is taken, by every process that loads the plan.

On the doubles of a GPU, which has a clock, and of cuBLASLt, whose algorithms take the time that they are told to.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_cublaslt import FakeLt, Proposal
from fake_cuda import FakeCuda, HostMemory
from kernel_cases import _held
from native_support import model, node, sample
from test_native_gpu import check, graph_of, options
from test_native_late import Shelf

from hybrid_infer._types import TF32
from hybrid_infer.backends.native import _algorithms, _libraries, _passes, _timing, gpu

#: As it was measured: the first proposal splits sums and adds them up in a kernel of its own.
SPLIT, WHOLE = Proposal(7, 13.1e-6, workspace=8192), Proposal(9, 8.3e-6, workspace=0)


def product(rows: Any = 4, dtype: str = "float32") -> Any:
    """A product with a bias and a residual."""
    nodes = [
        node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["q"]), node("Add", ["q", "x"], ["y"]),
    ]  # fmt: skip
    shapes = {"x": (dtype, (rows, 8)), "w": (dtype, (8, 8)), "b": (dtype, (8,))}
    return model(nodes, shapes, ["y"])


def feeds(rows: int = 4) -> dict[str, Any]:
    return {"x": sample((rows, 8), 0), "w": sample((8, 8), 1), "b": sample((8,), 2)}


class Timed:
    """What a build tells and uses. ``shelf``: where choices are kept for other plans."""

    def __init__(self, lt: FakeLt, made: Any = None, tf32: TF32 | None = None, shelf: Shelf | None = None) -> None:
        self.lt, self.model, self.shelf = lt, made or product(), shelf or Shelf()
        self.graph, self.memory = graph_of(self.model), HostMemory(numpy=True)
        extra = {"products": self.shelf, "kernels": Shelf(), **({} if tf32 is None else {"tf32": tf32})}
        self.told = options(self.memory, extra=extra)
        self.files: dict[str, bytes] = {}

    def built(self) -> list[str]:
        """Build; what is said of algorithms."""
        self.files = gpu.ENGINE.prepare(self.graph, self.told)
        return [each["why"] for each in gpu.ENGINE.decisions(self.files) if each["rule"] == "algorithms"]

    def served(self, rows: int = 4) -> dict[int, int]:
        """Load what was built and run it three times; which algorithms were enqueued, by number."""
        program = gpu.ENGINE.load(self.graph, [], self.told, self.files)
        self.lt.used.clear()
        for _ in range(3):  # launched, captured, replayed
            check(_passes.plan(self.model), program, self.graph, feeds(rows))
        program.close()
        return dict(self.lt.used)


def another_process(monkeypatch: pytest.MonkeyPatch, lt: FakeLt) -> None:
    monkeypatch.setattr(_libraries, "_opened", {})
    monkeypatch.setattr(_libraries, "_offers", {})
    lt.count.clear()


def test_the_fastest_of_what_is_proposed_is_taken_and_told(
    cublaslt: FakeLt, cuda: FakeCuda, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hybrid_infer")
    slow, late = Proposal(3, 50e-6), Proposal(4, 9e-6)
    unfit = [Proposal(5, 1e-6, state=15), Proposal(6, 1e-6, workspace=1 << 30)]
    cublaslt.proposals = [SPLIT, slow, *unfit, WHOLE, late]
    timed = Timed(cublaslt)
    assert timed.built() == ["cuBLASLt: proposal 3 of 4 by time, 8.3 us, first proposal 13.1 us"]
    assert "4 of cuBLASLt's proposals for 1 products were timed" in caplog.text
    assert not any(cublaslt.used[each.number] for each in unfit)
    assert timed.served() == {WHOLE.number: 2}
    # Nothing of it is left.
    assert not cuda.live["event"] and not cuda.live["ready graph"] and not cuda._capturing


def test_what_is_much_slower_is_timed_less_often(cublaslt: FakeLt, cuda: FakeCuda) -> None:
    cublaslt.proposals = [SPLIT, Proposal(3, 50e-6), WHOLE]
    Timed(cublaslt).built()
    assert cuda.count["cuEventElapsedTime"] == 2 + 6 + 6


def test_the_first_proposal_stays_where_none_is_clearly_faster(cublaslt: FakeLt) -> None:
    cublaslt.proposals = [Proposal(1, 10e-6), Proposal(2, 9.9e-6)]
    timed = Timed(cublaslt)
    assert timed.built() == ["cuBLASLt: the first proposal of 2 by time, 10.0 us"]
    assert timed.served() == {1: 2}


def test_weights_are_read_elsewhere_each_time_and_what_is_computed_on_is_not(
    cublaslt: FakeLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a call, in which a product's weights have left the caches since it was computed last."""
    read: dict[str, set[int]] = {"weight": set(), "x": set(), "y": set(), "addend": set()}
    run = cublaslt.matmul

    def matmul(*given: Any) -> None:
        for what, place in (("weight", 3), ("x", 5), ("addend", 8), ("y", 10)):
            read[what].add(given[place])
        run(*given)

    monkeypatch.setattr(cublaslt, "matmul", matmul)
    cublaslt.proposals = [SPLIT, WHOLE]
    nodes = [
        node("Tanh", ["a"], ["x"]), node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["q"]),
        node("Add", ["q", "x"], ["y"]),
    ]  # fmt: skip
    shapes = {"a": ("float32", (4, 8)), "w": ("float32", (8, 8)), "b": ("float32", (8,))}
    Timed(cublaslt, model(nodes, shapes, ["y"])).built()
    assert {what: len(places) for what, places in read.items()} == {"weight": 8, "x": 1, "y": 1, "addend": 1}


def test_another_process_uses_the_same_without_a_measurement(
    cublaslt: FakeLt, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    cublaslt.proposals = [SPLIT, WHOLE]
    timed = Timed(cublaslt)
    timed.built()
    another_process(monkeypatch, cublaslt)
    cuda.count.clear()
    # Were it asked again, it would choose another.
    cublaslt.proposals = [Proposal(SPLIT.number, 1e-6, SPLIT.workspace), WHOLE]
    assert timed.served() == {WHOLE.number: 2}
    assert not cuda.count["cuEventElapsedTime"] and cublaslt.count["checked"] == 1
    assert not cublaslt.count["asked for one"] and not cublaslt.count["asked for several"]


@pytest.mark.parametrize("what", ["release", "gpu", "multiprocessors"])
def test_what_was_chosen_elsewhere_is_not_used(
    what: str, cublaslt: FakeLt, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hybrid_infer")
    cublaslt.proposals = [SPLIT, WHOLE]
    timed = Timed(cublaslt)
    timed.built()
    another_process(monkeypatch, cublaslt)
    if what == "release":
        cublaslt.version += 1
    elif what == "gpu":
        cuda.name = b"Another GPU"
    else:
        cuda.attributes[16] += 1
    assert timed.served() == {SPLIT.number: 2}
    assert "the algorithms of a plan were the fastest for cuBLASLt 130000, A GPU of tests" in caplog.text
    # A plan that is made there has its own, though the shelf has the others'.
    assert timed.built() and timed.served() == {WHOLE.number: 2}


def test_what_the_library_does_not_take_back_is_replaced_by_its_choice(
    cublaslt: FakeLt, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hybrid_infer")
    cublaslt.proposals = [SPLIT, WHOLE]
    timed = Timed(cublaslt)
    timed.built()
    another_process(monkeypatch, cublaslt)
    cublaslt.disowned = {WHOLE.number}
    assert timed.served() == {SPLIT.number: 2}
    assert "cuBLASLt does not take back its fastest algorithm for gemm of float32" in caplog.text
    assert "CUBLAS_STATUS_NOT_SUPPORTED" in caplog.text


def test_other_plans_of_a_store_compute_the_same_product_alike(cublaslt: FakeLt, cuda: FakeCuda) -> None:
    cublaslt.proposals = [SPLIT, WHOLE]
    first = Timed(cublaslt)
    said = first.built()
    cublaslt.proposals = [Proposal(SPLIT.number, 1e-6, SPLIT.workspace), WHOLE]
    cuda.count.clear()
    second = Timed(cublaslt, shelf=first.shelf)
    assert second.built() == said and second.served() == {WHOLE.number: 2}
    assert not cuda.count["cuEventElapsedTime"] and first.shelf.updates == 1


def test_of_two_builds_at_once_the_one_that_writes_first_decides(cublaslt: FakeLt) -> None:
    cublaslt.proposals = [SPLIT, WHOLE]
    first = Timed(cublaslt)
    first.built()

    class Late(Shelf):
        """It is empty when it is read: the other one writes while this one measures."""

        def update(self, merge: Callable[[bytes], bytes]) -> None:
            self.data = first.shelf.data
            super().update(merge)

    cublaslt.proposals = [Proposal(SPLIT.number, 1e-6, SPLIT.workspace), WHOLE]
    second = Timed(cublaslt, shelf=Late())
    second.built()
    assert second.served() == {WHOLE.number: 2} and second.shelf.data == first.shelf.data


def test_a_shelf_that_is_damaged_costs_a_measurement_alone(cublaslt: FakeLt, cuda: FakeCuda) -> None:
    cublaslt.proposals = [SPLIT, WHOLE]
    timed = Timed(cublaslt)
    timed.built()
    whole = timed.shelf.data
    for damaged in (whole[:-1], whole.replace(b'["0', b'["1'), b"\xff\n", b"nothing", b"\n"):
        assert damaged != whole
        timed.shelf.data = damaged
        cuda.count.clear()
        timed.built()
        assert cuda.count["cuEventElapsedTime"] and timed.served() == {WHOLE.number: 2}
        assert timed.shelf.data == whole


def test_a_shelf_keeps_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_algorithms, "_ROWS", 2)
    data = b""
    for i in range(4):
        data = _algorithms._written({str(i): _algorithms.Row("00", ""), **_algorithms._read(data)})
    assert [*_algorithms._read(data)] == ["3", "2"]


@pytest.mark.parametrize("function", [
    "cuEventCreate", "cuEventRecord", "cuEventElapsedTime", "cuGraphInstantiateWithFlags", "cuStreamCreate",
    "cuGraphLaunch", "cuMemcpyDtoDAsync_v2", "cuDeviceGetName",
])  # fmt: skip
def test_a_fault_in_a_measurement_costs_the_measurement_alone(
    function: str, cublaslt: FakeLt, cuda: FakeCuda
) -> None:
    cublaslt.proposals = [SPLIT, WHOLE]
    timed = Timed(cublaslt)
    cuda.fail[function] = 2
    said = timed.built()
    assert function not in cuda.fail and all("no others were timed" in each for each in said)
    assert not cuda.live["event"] and not cuda.live["ready graph"]
    assert timed.served() == {SPLIT.number: 2}


def test_what_the_host_takes_is_no_part_of_a_measurement(
    cublaslt: FakeLt, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caches are emptied by one launch, which keeps the GPU busy while the one launch that is timed is enqueued."""
    asked, call = list[str](), FakeCuda.__getattr__

    def noting(self: FakeCuda, name: str) -> Any:
        if name not in ("cuThreadExchangeStreamCaptureMode", "__wrapped__"):
            asked.append(name)
        return call(self, name)

    cublaslt.proposals = [SPLIT, WHOLE]
    monkeypatch.setattr(FakeCuda, "__getattr__", noting)
    Timed(cublaslt).built()
    ends = [i for i, name in enumerate(asked) if name == "cuEventSynchronize"]
    assert len(ends) >= 6
    for end in ends:
        timed = ["cuEventCreate", "cuEventCreate", "cuEventRecord", "cuGraphLaunch", "cuEventRecord"]
        assert asked[end - 6 : end] == ["cuGraphLaunch", *timed]


def test_memory_that_is_not_there_costs_the_measurement_alone(
    cublaslt: FakeLt, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hybrid_infer")
    cublaslt.proposals = [SPLIT, WHOLE]
    timed = Timed(cublaslt)
    timed.memory.limit = 1 << 16
    assert not timed.built()
    assert "cuBLASLt's proposals were not timed: CUDA out of memory. Tried to allocate more than" in caplog.text
    timed.memory.limit = None
    assert timed.served() == {SPLIT.number: 2}


def test_of_what_the_library_does_not_compute_no_algorithm_is_told(cublaslt: FakeLt, cuda: FakeCuda) -> None:
    for proposals in ([], [Proposal(5, 1e-6, state=15)]):
        cublaslt.proposals = proposals
        timed = Timed(cublaslt)
        assert timed.built() == ["1 products keep what cuBLASLt proposes first, if anything: no others were timed"]
        assert not cuda.count["cuEventCreate"] and timed.served() == {}


@pytest.mark.parametrize(("dtype", "x", "w", "bias"), [
    ("float16", (3, 4, 8), (3, 8, 5), False), ("bfloat16", (3, 4, 8), (1, 8, 5), False),
    ("float64", (1, 4, 8), (3, 8, 5), False), ("bfloat16", (2, 3, 8), (8, 5), True), ("float64", (4, 8), (8, 5), True),
])  # fmt: skip
def test_every_form_of_a_product_is_timed_and_computed_by_what_was_chosen(
    dtype: str, x: tuple[int, ...], w: tuple[int, ...], bias: bool, cublaslt: FakeLt, cuda: FakeCuda
) -> None:
    """Batches, one matrix for all of a batch, and biases, in types whose sums are of another or of the same type."""
    cublaslt.proposals = [SPLIT, WHOLE]
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])][: 1 + bias]
    shapes = {"x": x, "w": w, **({"b": w[-1:]} if bias else {})}
    made = model(nodes, {name: (dtype, shape) for name, shape in shapes.items()}, ["y" if bias else "p"])
    timed = Timed(cublaslt, made)
    assert timed.built() == ["cuBLASLt: proposal 2 of 2 by time, 8.3 us, first proposal 13.1 us"]
    program = gpu.ENGINE.load(timed.graph, [], timed.told, timed.files)
    cublaslt.used.clear()
    for i in range(3):  # of other weights each time
        given = {name: _held(sample(shape, i + k), dtype) for k, (name, shape) in enumerate(shapes.items())}
        check(_passes.plan(made), program, timed.graph, given)
    assert set(cublaslt.used) == {WHOLE.number}
    program.close()


def test_proposals_that_do_not_run_are_left_out(cublaslt: FakeLt) -> None:
    cublaslt.proposals = [SPLIT, Proposal(3, 1e-6, runs=False), WHOLE]
    timed = Timed(cublaslt)
    assert timed.built() == ["cuBLASLt: proposal 2 of 2 by time, 8.3 us, first proposal 13.1 us"]
    assert timed.served() == {WHOLE.number: 2}


def test_nothing_is_measured_while_the_program_captures(cublaslt: FakeLt, cuda: FakeCuda) -> None:
    cublaslt.proposals = [SPLIT, WHOLE]
    timed = Timed(cublaslt)
    timed.memory.users_capture = True
    assert not timed.built()
    assert not cuda.count["cuEventCreate"] and not cublaslt.used


def test_a_measurement_spoils_nothing_that_another_thread_captures(cublaslt: FakeLt, cuda: FakeCuda) -> None:
    cublaslt.proposals = [SPLIT, WHOLE]
    cuda.elsewhere = True
    assert Timed(cublaslt).built() == ["cuBLASLt: proposal 2 of 2 by time, 8.3 us, first proposal 13.1 us"]
    assert not cuda.spoilt_elsewhere


def test_sizes_that_only_a_call_knows_have_the_first_proposal(cublaslt: FakeLt, cuda: FakeCuda) -> None:
    cublaslt.proposals = [SPLIT, WHOLE]
    timed = Timed(cublaslt, product("n"))
    assert not timed.built() and not cuda.count["cuEventCreate"]
    assert timed.served(5) == {SPLIT.number: 2}


def test_a_build_times_for_a_second_at_most(
    cublaslt: FakeLt, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    cublaslt.proposals = [SPLIT, WHOLE]
    monkeypatch.setattr(_algorithms, "SECONDS", 0.0)
    timed = Timed(cublaslt)
    assert timed.built() == ["1 products keep what cuBLASLt proposes first, if anything: no others were timed"]
    assert not cuda.count["cuEventCreate"] and timed.served() == {SPLIT.number: 2}


@pytest.mark.parametrize(("done", "chosen"), [(3, False), (4, False), (5, True)])
def test_a_stream_that_is_busy_does_not_hold_a_build_up(
    done: int, chosen: bool, cublaslt: FakeLt, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of five proposals has to have been timed once; more often where there is time."""
    cublaslt.proposals = [SPLIT, Proposal(1, 20e-6), WHOLE, Proposal(2, 20e-6), Proposal(3, 20e-6)]
    monkeypatch.setattr(_timing, "monotonic", lambda: 1e18 * (cuda.count["cuEventElapsedTime"] >= done))
    timed = Timed(cublaslt)
    said = timed.built()
    assert ("proposal 3 of 5 by time" in said[0]) == chosen
    assert cuda.count["cuEventElapsedTime"] == done and not cuda.live["ready graph"]
    assert timed.served() == {(WHOLE if chosen else SPLIT).number: 2}


def test_what_is_the_fastest_in_tf32_is_used_there_alone(cublaslt: FakeLt, monkeypatch: pytest.MonkeyPatch) -> None:
    cublaslt.proposals = [SPLIT, WHOLE]
    rounded = Timed(cublaslt, tf32=TF32(products=True))
    rounded.built()
    another_process(monkeypatch, cublaslt)
    exact = Timed(cublaslt, shelf=rounded.shelf)
    exact.files = rounded.files
    assert exact.served() == {SPLIT.number: 2}
    assert exact.built() and exact.served() == {WHOLE.number: 2}


def test_a_decorated_layer_finds_them_in_the_store(
    on_a_gpu: HostMemory, cublaslt: FakeLt, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    torch = pytest.importorskip("torch")
    import hybrid_infer

    cublaslt.proposals = [SPLIT, WHOLE]
    x, seen = torch.randn(4, 8), []
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()).eval()
    with torch.no_grad():
        expected = layer(x)
        for _ in range(2):
            fast = hybrid_infer.inference(torch.nn.Sequential(*layer).eval())
            torch.testing.assert_close(fast(x), expected)
            cublaslt.used.clear()
            torch.testing.assert_close(fast(x), expected)
            (version,) = hybrid_infer.explain(fast).to_dict()["methods"][0]["versions"]
            said = [each["why"] for each in version["decisions"]["native"] if each["rule"] == "algorithms"]
            seen.append((dict(cublaslt.used), said, cuda.count["cuEventElapsedTime"] > 0))
            hybrid_infer.release(fast)
            another_process(monkeypatch, cublaslt)
            cuda.count.clear()
            cublaslt.proposals = [Proposal(SPLIT.number, 1e-6, SPLIT.workspace), WHOLE]
    why = ["cuBLASLt: proposal 2 of 2 by time, 8.3 us, first proposal 13.1 us"]
    assert [each[1:] for each in seen] == [(why, True), (why, False)]
    assert all(set(used) == {WHOLE.number} for used, _, _ in seen)

"""What is remembered of a failure: only what lies in the graph and in TensorRT. All else is tried again."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
from decorated import LASTING, Odd, builds, check, engines, layer, record, stats_fallbacks, unfit
from double import World

import hybrid_infer
from hybrid_infer import _background, _choice, _trt
from hybrid_infer._errors import EngineError
from hybrid_infer.backends import engine
from hybrid_infer.checks import _verified

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("on_the_host")

BUILD = "Builder.build_serialized_network"
NO_MEMORY = "Error Code 1: Cuda Runtime (out of memory)"

#: What fails, with what it returns or raises, and what TensorRT says meanwhile.
PASSING = [
    (BUILD, None, NO_MEMORY),
    (BUILD, None, ""),
    (BUILD, None, "Error Code 2: OutOfMemory (Requested amount of GPU memory could not be allocated.)"),
    (BUILD, OSError(28, "No space left on device"), ""),
    (BUILD, MemoryError(), ""),
    (BUILD, RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable"), ""),
    ("Builder.create_network", None, NO_MEMORY),
    ("Builder.__init__", TypeError("factory function returned nullptr"), ""),
    ("OnnxParser.load_initializer", False, ""),
    ("Runtime.deserialize_cuda_engine", None, NO_MEMORY),
    ("Refitter.refit_cuda_engine_async", False, NO_MEMORY),
    ("IExecutionContext.execute_async_v3", False, NO_MEMORY),
]


def next_process() -> None:
    hybrid_infer._family._FAMILIES.clear()


def remembered(store: Path) -> list[Path]:
    return [path for path in store.rglob("*") if "failures" in path.parts and path.is_file()]


@pytest.mark.parametrize(("method", "answer", "said"), PASSING, ids=range(len(PASSING)))
def test_what_passes_is_tried_again_by_the_next_process(
    world: World, store: Path, method: str, answer: Any, said: str
) -> None:
    world.false[method] = answer
    if said:
        world.said[method] = said
    wrapped, plain = layer()
    check(wrapped, plain, 3, 3)
    assert engines(wrapped) == [["onnxruntime"]] and unfit(wrapped)["tensorrt"]
    tries = world.counts[method]
    check(wrapped, plain, 3, 3)
    assert world.counts[method] == tries  # not by this one at each call
    assert not remembered(store)
    world.false.clear()
    next_process()
    again, _ = layer()
    check(again, plain, 3)
    assert engines(again) == [["tensorrt"]]


def test_it_is_tried_again_after_a_pause(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_verified, "_PAUSE", 0.0)
    world.false[BUILD] = None
    wrapped, plain = layer()
    check(wrapped, plain, 3)
    assert engines(wrapped) == [["onnxruntime"]]
    world.false.clear()
    check(wrapped, plain, 3, 3)
    assert engines(wrapped) == [["tensorrt"]] and "tensorrt" not in unfit(wrapped)


def test_the_pause_grows_with_each_failure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(_verified.time, "monotonic", lambda: clock[0])
    world.false[BUILD] = None
    wrapped, plain = layer()
    met = []
    for _ in range(40):
        check(wrapped, plain, 3)
        met.append(builds(world))
        clock[0] += 150.0
    assert met[:8] == [1, 1, 2, 2, 2, 2, 3, 3] and met[-1] == 5


def test_the_pause_is_that_of_the_plan_that_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(_verified.time, "monotonic", lambda: clock[0])
    wrapped, plain = layer(trt_use_static=True)
    check(wrapped, plain, 3, 4)
    world.false[BUILD], tries = None, builds(world)
    for seconds, size in [(0, 5), (300, 5), (310, 6), (600, 6), (620, 6), (890, 5), (910, 5)]:
        clock[0] = 1000.0 + seconds
        check(wrapped, plain, size)
        tries += (seconds, size) in {(0, 5), (300, 5), (310, 6), (620, 6), (910, 5)}
        assert builds(world) == tries, (seconds, size)


def test_where_nothing_else_serves_the_call_is_eager_for_a_while(
    world: World, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world.false[BUILD], world.said[BUILD] = None, NO_MEMORY
    wrapped, plain = layer(backend=["tensorrt"])
    check(wrapped, plain, 3, 3, 3)
    assert engines(wrapped) == [[]] and builds(world) == 1 and stats_fallbacks()
    assert not remembered(store) and "its builder gave no plan" in caplog.text
    world.false.clear()
    next_process()
    again, _ = layer(backend=["tensorrt"])
    check(again, plain, 3)
    assert engines(again) == [["tensorrt"]]


def test_a_refused_node_is_remembered_once_whatever_the_size(world: World, store: Path) -> None:
    world.refused = {"Acos"}
    wrapped, plain = layer(Odd, trt_use_static=True)
    check(wrapped, plain, 3, 4, 5, 6)
    parsed = world.counts["OnnxParser.parse_model_proto"]
    assert parsed <= 2 and len(remembered(store)) == parsed  # for the graph of one size, and that of any
    next_process()
    again, _ = layer(Odd, trt_use_static=True)
    check(again, plain, 7)
    assert world.counts["OnnxParser.parse_model_proto"] == parsed and "it refuses Acos" in unfit(again)["tensorrt"]


@pytest.mark.parametrize(("said", "tries"), [(LASTING, 1), (NO_MEMORY, 3)])
def test_a_wider_plan_is_tried_again_where_its_failure_passes(
    world: World, said: str, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_verified, "_PAUSE", 0.0)
    wrapped, plain = layer()
    check(wrapped, plain, 3, 4)
    before = builds(world)
    world.false[BUILD], world.said[BUILD] = None, said
    for _ in range(3):
        check(wrapped, plain, 9)
        _background.wait()
    assert builds(world) == before + tries
    world.false.clear()
    for _ in range(3):
        check(wrapped, plain, 9)
        _background.wait()
    assert builds(world) == before + tries + (said == NO_MEMORY)
    assert (engines(wrapped)[-1] == ["tensorrt"]) == (said == NO_MEMORY)


def test_a_wider_plan_is_left_alone_as_long_as_one_for_a_call(world: World) -> None:
    """By a forked child too, which has no thread that might be building one."""
    wrapped, plain = layer()
    check(wrapped, plain, 3, 4)
    world.false[BUILD], world.said[BUILD] = None, NO_MEMORY
    others = [layer()[0] for _ in range(2)]
    for each in others:
        check(each, plain, 9)
        _background.wait()
        for family in hybrid_infer._family._FAMILIES.values():
            for held in family.held:
                held.ranges.renew_after_fork()
    assert builds(world) == 3


def test_what_is_built_in_the_background_keeps_no_tensor_of_the_call(world: World) -> None:
    wrapped, plain = layer()
    check(wrapped, plain, 3, 4)
    world.false[BUILD], world.said[BUILD] = None, LASTING
    given = torch.randn(9, 4)
    kept = weakref.ref(given)
    with torch.no_grad():
        wrapped(given)
    _background.wait()
    del given
    gc.collect()
    assert kept() is None


# Plans that TensorRT does not take


def test_a_plan_of_other_libraries_is_made_anew_once(world: World) -> None:
    """Of such as its key does not hold: that of another version or GPU is not even tried."""
    wrapped, plain = layer()
    check(wrapped, plain, 3)
    world.libraries = 1
    next_process()
    again, _ = layer()
    with pytest.warns(hybrid_infer.CacheWarning, match="is made anew: tensorrt: it does not take the plan: Serial"):
        check(again, plain, 3)
    assert builds(world) == 2 and engines(again) == [["tensorrt"]]
    next_process()
    last, _ = layer()
    check(last, plain, 3)
    assert builds(world) == 2 and engines(last) == [["tensorrt"]]


def test_a_plan_that_cannot_be_given_its_weights_is_not_built_again(world: World) -> None:
    world.false["Refitter.get_missing_weights"] = ["made by the parser"]
    for _ in range(2):
        wrapped, plain = layer()
        check(wrapped, plain, 3, 3)
        assert builds(world) == 1 and engines(wrapped) == [["onnxruntime"]]
        assert "it misses weights: made by the parser" in unfit(wrapped)["tensorrt"]
        next_process()


# Plans that compute something else


def test_a_wider_plan_that_is_wrong_takes_no_sizes_over(world: World, store: Path) -> None:
    world.wrong = {3}
    wrapped, plain = layer()
    check(wrapped, plain, 3, 4)
    settled = [each["profile"] for each in record(store)]
    check(wrapped, plain, 9)
    _background.wait()
    assert builds(world) == 3
    check(wrapped, plain, 9, 9, 4)
    _background.wait()
    assert [each["profile"] for each in record(store)] == settled
    assert ["onnxruntime", "tensorrt"] in engines(wrapped) and builds(world) == 3
    next_process()
    again, _ = layer()
    check(again, plain, 4, 9)
    _background.wait()
    check(again, plain, 4, 9)
    assert ["onnxruntime", "tensorrt"] in engines(again) and builds(world) == 3


def test_a_wider_plan_is_settled_once_a_call_has_verified_it(world: World, store: Path) -> None:
    wrapped, plain = layer()
    check(wrapped, plain, 3, 4)
    settled = [each["profile"] for each in record(store)]
    check(wrapped, plain, 9)
    _background.wait()
    assert [each["profile"] for each in record(store)] == settled
    check(wrapped, plain, 9)
    assert [each["profile"] for each in record(store)] != settled


def test_a_first_plan_that_is_wrong_is_the_last(world: World, store: Path) -> None:
    world.wrong = {1, 2, 3, 4}
    wrapped, plain = layer()
    check(wrapped, plain, 3, 3)
    assert builds(world) == 1 and engines(wrapped) == [["onnxruntime"]]
    assert {str(each["profile"]) for each in record(store)} == {"None"}
    next_process()
    again, _ = layer()
    check(again, plain, 3, 3)
    assert builds(world) == 1 and engines(again) == [["onnxruntime"]]


# Where it is not asked


def test_tensors_on_the_processor_are_measured_where_tensorrt_is_installed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_trt, "DEVICES", ("cuda", "gpu"))
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    measured: list[object] = []
    measure = _choice.measure
    monkeypatch.setattr(_choice, "measure", lambda *given: (measured.append(given), measure(*given))[1])
    wrapped, plain = layer()
    check(wrapped, plain, 3, 3)
    assert measured and builds(world) == 0


def test_tensors_on_the_gpu_are_not(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    monkeypatch.setattr(_choice, "measure", lambda *given: pytest.fail("the user has named TensorRT"))
    wrapped, plain = layer()
    check(wrapped, plain, 3, 3)
    assert engines(wrapped) == [["tensorrt"]]


# Words


def test_a_reason_is_given_where_tensorrt_says_nothing(world: World) -> None:
    from host_memory import TorchHost

    from hybrid_infer._types import EngineOptions

    world.false[BUILD] = None
    from backend_graphs import linear

    with pytest.raises(EngineError, match="its builder gave no plan: no reason"):
        engine("tensorrt").prepare(linear(), EngineOptions(memory=TorchHost("cpu")))


def test_what_engines_say_of_the_moment() -> None:
    for text in ("std::bad_alloc", "CUDA out of memory. Tried to allocate", "No space left on device", "OUT_OF_MEMORY",
                 "onnxruntime cannot be imported: failed to map segment from shared object"):
        assert _verified.passing(EngineError("onnxruntime", text))
    assert not _verified.passing(EngineError("onnxruntime", "no kernel for Acos"))
    wrapped = EngineError("native", "no")
    wrapped.__cause__ = OSError("gone")
    assert _verified.passing(wrapped)

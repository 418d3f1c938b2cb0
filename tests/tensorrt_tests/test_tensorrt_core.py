"""How the core drives TensorRT: a double of it serves decorated layers first, with the next engines behind it."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decorated import LASTING, Odd, builds, check, engines, layer, record, stats_fallbacks, unfit
from double import World

import hybrid_infer
from hybrid_infer import InputSpec, _background, _trt, inference

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("on_the_host")


# First


def test_it_is_tried_first_and_serves(world: World) -> None:
    wrapped, plain = layer()
    check(wrapped, plain, 3, 3, 3)
    assert engines(wrapped) == [["tensorrt"]] and builds(world) == 1
    assert not any(stats_fallbacks())


def test_equal_blocks_share_one_plan_and_the_next_process_builds_none(world: World) -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        @inference(with_trt=True)
        def forward(self, x: Any) -> Any:
            return torch.relu(self.linear(x))

    torch.manual_seed(0)
    blocks = [Block().eval() for _ in range(4)]
    with torch.no_grad():
        x = torch.randn(3, 4)
        for block in blocks:
            torch.testing.assert_close(block(x), torch.relu(block.linear(x)))
        assert builds(world) == 1 and world.counts["Runtime.deserialize_cuda_engine"] == 4
        hybrid_infer.release(blocks[0])
        torch.testing.assert_close(blocks[0](x), torch.relu(blocks[0].linear(x)))
    assert builds(world) == 1


def test_a_changed_weight_is_refitted(world: World) -> None:
    wrapped, plain = layer()
    check(wrapped, plain, 3)
    refits = world.counts["Refitter.refit_cuda_engine_async"]
    with torch.no_grad():
        for each in (wrapped, plain):
            each.linear.weight.add_(1)
    check(wrapped, plain, 3, 3)
    assert world.counts["Refitter.refit_cuda_engine_async"] == refits + 1 and builds(world) == 1
    assert engines(wrapped) == [["tensorrt"]]


def test_plans_come_from_disk_and_are_verified_once(world: World, store: Path) -> None:
    wrapped, plain = layer()
    check(wrapped, plain, 3)
    again, _ = layer()
    hybrid_infer._family._FAMILIES.clear()
    check(again, plain, 3)
    assert builds(world) == 1 and engines(again) == [["tensorrt"]]
    assert list(store.rglob("engine.plan"))


def test_a_plan_goes_with_the_gpu_whatever_the_processor_beside_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hybrid_infer import _engines

    wrapped, plain = layer()
    check(wrapped, plain, 3)
    monkeypatch.setattr(_engines, "_machine", lambda: "another processor")
    hybrid_infer._family._FAMILIES.clear()
    again, _ = layer()
    check(again, plain, 3)
    assert builds(world) == 1 and engines(again) == [["tensorrt"]]
    world.gpu = "another GPU"
    hybrid_infer._family._FAMILIES.clear()
    last, _ = layer()
    check(last, plain, 3)
    assert builds(world) == 2 and engines(last) == [["tensorrt"]]


def test_a_plan_that_others_could_have_written_is_made_anew(
    world: World, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrapped, plain = layer()
    check(wrapped, plain, 3)
    (plan,) = store.rglob("engine.plan")
    plan.parent.chmod(0o770)
    hybrid_infer._family._FAMILIES.clear()
    again, _ = layer()
    with caplog.at_level(logging.INFO, "hybrid_infer"):
        check(again, plain, 3)
    assert builds(world) == 2 and "and built by each process, since others can write to" in caplog.text


def test_a_plan_that_is_damaged_is_made_anew(world: World, store: Path) -> None:
    wrapped, plain = layer()
    check(wrapped, plain, 3)
    (plan,) = store.rglob("engine.plan")
    plan.write_bytes(plan.read_bytes()[:-1] + b"?")
    hybrid_infer._family._FAMILIES.clear()
    again, _ = layer()
    with pytest.warns(hybrid_infer.CacheWarning, match="other content"):
        check(again, plain, 3)
    assert builds(world) == 2


# Sizes


def test_a_size_outside_the_profile_is_answered_by_the_next_engine_while_a_wider_plan_is_built(
    world: World, store: Path
) -> None:
    wrapped, plain = layer()
    check(wrapped, plain, 3, 4)  # exact, then from 4 on
    before = builds(world)
    assert before == 2
    check(wrapped, plain, 9)
    assert engines(wrapped)[-1] in (["onnxruntime", "tensorrt"], ["tensorrt"])
    _background.wait()
    assert builds(world) == before + 1
    check(wrapped, plain, 9, 7, 4)
    assert engines(wrapped)[-1] == ["tensorrt"] and builds(world) == before + 1
    assert [[[4, 4], [9, 4], [9, 4]]] in [each["profile"] for each in record(store)]
    assert not any(stats_fallbacks())


def test_in_the_background_the_next_engine_serves_while_it_builds_and_then_it_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hybrid_infer.backends.tensorrt.engine import TensorRt

    go, begun, prepare = threading.Event(), threading.Event(), TensorRt.prepare

    def slowly(self: Any, *arguments: Any) -> Any:
        begun.set()
        assert go.wait(60)
        return prepare(self, *arguments)

    monkeypatch.setattr(TensorRt, "prepare", slowly)
    wrapped, plain = layer(background=True)
    check(wrapped, plain, 3)
    assert begun.wait(60)
    check(wrapped, plain, 3, 3, 3)
    assert engines(wrapped) == [["onnxruntime"]]
    (counted,) = hybrid_infer.stats().values()
    assert counted["eager_calls"] == 1 and counted["hits"] == 3
    go.set()
    _background.wait()
    check(wrapped, plain, 3)  # which finds that a plan is there
    _background.wait()
    check(wrapped, plain, 3)
    assert engines(wrapped) == [["tensorrt"]] and builds(world) == 1


def test_sizes_that_creep_up_need_few_plans(world: World) -> None:
    wrapped, plain = layer()
    for n in range(2, 80):
        check(wrapped, plain, n)
        _background.wait()
    assert builds(world) <= 9
    assert engines(wrapped)[-1] == ["tensorrt"]


def test_the_next_process_knows_the_profile(world: World) -> None:
    wrapped, plain = layer()
    for n in (3, 4, 9):
        check(wrapped, plain, n)
        _background.wait()
    check(wrapped, plain, 9)
    before = builds(world)
    hybrid_infer._family._FAMILIES.clear()
    again, _ = layer()
    check(again, plain, 7, 9, 4)
    assert builds(world) == before


def test_a_wider_plan_that_fails_leaves_the_next_engine_in_place(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    wrapped, plain = layer()
    check(wrapped, plain, 3, 4)
    world.false["Builder.build_serialized_network"] = None
    world.said["Builder.build_serialized_network"] = LASTING
    check(wrapped, plain, 9)
    _background.wait()
    check(wrapped, plain, 9, 9, 4)
    assert world.counts["Builder.build_serialized_network"] == 3
    assert caplog.text.count("serves no more sizes than before") == 1


def test_static_plans_are_one_for_each_size_and_bounded(world: World) -> None:
    wrapped, plain = layer(trt_use_static=True, max_versions=3)
    check(wrapped, plain, 3, 4, 5, 6, 7, 7)
    assert world.profiles[1:] == [{"x0": ((n, 4),) * 3} for n in (4, 5, 6, 7)]
    state = next(iter(wrapped.forward.__hybrid_infer__.states.values()))[1]
    assert len(state.routes) <= 4
    check(wrapped, plain, 4)
    assert builds(world) == 5  # the plan was kept


def test_sizes_are_collected_without_a_build(world: World, store: Path) -> None:
    wrapped, plain = layer(collect_shape=True)
    check(wrapped, plain, 3, 5, 2, 9)
    assert builds(world) == 0 and engines(wrapped)[-1] == ["onnxruntime"]
    seen = [tuple(each["sizes"][0]) for found in record(store) for each in found["seen"]]
    assert {(5, 4), (2, 4), (9, 4)} <= set(seen)
    built, _ = layer()
    check(built, plain, 6)
    assert world.profiles == [{"x0": ((2, 4), (6, 4), (9, 4))}]
    check(built, plain, 2, 9, 5)
    assert builds(world) == 1


def test_declared_ranges_make_the_profile(world: World) -> None:
    spec = InputSpec([None, 4], "float32", min=[5, 4], opt=[8, 4], max=[32, 4])
    wrapped, plain = layer(input_spec=[spec])
    check(wrapped, plain, 5, 8, 32)
    assert world.profiles == [{"x0": ((5, 4), (8, 4), (32, 4))}] and builds(world) == 1


# Several at once


def test_a_plan_is_built_once_whoever_asks_for_it(world: World) -> None:
    """Threads here, and processes by the same lock: whoever comes second does not wait for the minutes of a build."""
    collecting, plain = layer(collect_shape=True)
    check(collecting, plain, 3)  # the static model is there, and no plan
    wrapped = [layer()[0] for _ in range(3)]
    world.steps, world.at_step = 30, lambda step: time.sleep(0.1)
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(check, each, plain, 3) for each in wrapped]:
            done.result()
    assert builds(world) == 1
    assert any("another thread or process builds its plan" in reason for each in stats_fallbacks() for reason in each)
    time.sleep(1.1)
    for each in wrapped:
        check(each, plain, 3)
        assert engines(each) == [["tensorrt"]]
    assert builds(world) == 1


def test_a_wider_plan_of_another_process_is_taken_over(world: World) -> None:
    first, plain = layer()
    check(first, plain, 3, 4)
    hybrid_infer._family._FAMILIES.clear()
    second, _ = layer()
    check(second, plain, 4)
    check(first, plain, 9)
    _background.wait()
    check(first, plain, 9)
    before = builds(world)
    check(second, plain, 9, 8)
    _background.wait()
    assert builds(world) == before and ["tensorrt"] in engines(second)
    assert not any("onnxruntime" in names for names in engines(second))


def test_a_wider_plan_is_kept_even_if_no_call_comes_any_more(world: World, store: Path) -> None:
    wrapped, plain = layer()
    check(wrapped, plain, 3, 4, 9)
    _background.wait()
    assert len(list(store.rglob("engine.plan"))) == builds(world)


# Options


def test_the_precision_is_tensorrts_own(world: World) -> None:
    wrapped, plain = layer(trt_precision_mode="float16")
    x = torch.randn(3, 4)
    with torch.no_grad():
        y = wrapped(x)
        y = wrapped(x)
        torch.testing.assert_close(y, plain(x), rtol=1e-2, atol=1e-2)
        assert not torch.equal(y, plain(x)) and engines(wrapped) == [["tensorrt"]]
        other, _ = layer(precision_mode="float16")
        other(x)
        torch.testing.assert_close(other(x), plain(x))
        left_out, _ = layer(trt_precision_mode="float16", delete_pass_lists=["precision"])
        left_out(x)
        torch.testing.assert_close(left_out(x), plain(x))


def test_without_optimisation_the_builders_level_is_the_lowest(world: World) -> None:
    wrapped, plain = layer(switch_ir_optim=False)
    check(wrapped, plain, 3)
    assert world.levels == [0]


def test_debugging_writes_the_inspectors_report_beside_the_graphs(world: World, store: Path) -> None:
    wrapped, plain = layer(switch_ir_debug=True)
    check(wrapped, plain, 3)
    (report,) = store.rglob("tensorrt.json")
    assert "Gemm" in json.loads(report.read_text())["Layers"]
    assert list(report.parent.glob("0-captured.onnx"))


def test_weights_are_fed_live(world: World) -> None:
    wrapped, plain = layer(weights="live")
    check(wrapped, plain, 3, 3)
    assert engines(wrapped) == [["tensorrt"]] and not world.counts["Refitter.set_named_weights"]


# What fails


def test_where_it_is_absent_one_warning_says_why_and_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from hybrid_infer.backends.tensorrt import _probe

    reason = f"the package tensorrt is not installed: {_probe.INSTALL}"
    monkeypatch.setattr(_probe, "missing", lambda: reason)
    for _ in range(2):
        wrapped, plain = layer()
        check(wrapped, plain, 3, 3)
    assert engines(wrapped) == [["onnxruntime"]]
    said = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(said) == 1 and said[0].endswith(f"with_trt=True: the next engine serves instead of TensorRT: {reason}")


def test_tensors_on_the_processor_are_not_its(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_trt, "DEVICES", ("cuda", "gpu"))
    wrapped, plain = layer()
    check(wrapped, plain, 3, 3)
    assert engines(wrapped) == [["onnxruntime"]]
    assert caplog.text.count("the tensors of the call are on the device 'cpu'") == 1


def test_refused_nodes_are_named_and_the_next_engine_serves(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.refused = {"Acos"}
    wrapped, plain = layer(Odd)
    check(wrapped, plain, 3, 3)
    assert engines(wrapped) == [["onnxruntime"]]
    assert "it refuses Acos" in unfit(wrapped)["tensorrt"]
    assert "it refuses Acos" in str(hybrid_infer.explain(wrapped))
    assert len([each for each in caplog.records if "instead of TensorRT" in each.getMessage()]) == 1


def test_what_was_refused_is_not_tried_again_by_the_next_process(world: World) -> None:
    world.false["Builder.build_serialized_network"] = None
    world.said["Builder.build_serialized_network"] = LASTING
    wrapped, plain = layer()
    check(wrapped, plain, 3)
    assert builds(world) == 1
    hybrid_infer._family._FAMILIES.clear()
    again, _ = layer()
    check(again, plain, 3)
    assert builds(world) == 1 and engines(again) == [["onnxruntime"]]
    assert "its builder gave no plan" in unfit(again)["tensorrt"]


def test_a_run_that_fails_is_answered_eagerly(world: World) -> None:
    wrapped, plain = layer()
    check(wrapped, plain, 3)
    world.false["IExecutionContext.execute_async_v3"] = False
    check(wrapped, plain, 3)
    assert any(stats_fallbacks())


# The other framework


def test_paddle(world: World) -> None:
    paddle = pytest.importorskip("paddle")
    paddle.seed(0)

    def made() -> Any:
        return paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.ReLU(), paddle.nn.Linear(4, 2))

    plain = made()
    plain.eval()
    wrapped = made()
    wrapped.set_state_dict(plain.state_dict())
    wrapped.eval()
    wrapped = inference(wrapped, with_trt=True)
    with paddle.no_grad():
        for n in (3, 3, 5, 5):
            x = paddle.randn([n, 4])
            np.testing.assert_allclose(wrapped(x).numpy(), plain(x).numpy(), rtol=1e-5, atol=1e-5)
    assert engines(wrapped)[-1:] == [["tensorrt"]]
    assert world.counts["Refitter.refit_cuda_engine_async"] >= 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_child_waits_for_no_thread_of_its_parent(world: World) -> None:
    wrapped, plain = layer()
    check(wrapped, plain, 2)
    family = wrapped.forward.__hybrid_infer__.states[id(wrapped)][1].family
    ranges = family.held[0].ranges
    ranges.widening = object()  # a plan that only the parent's thread would finish
    with ranges.lock:  # as a thread has it that reads the record
        child = os.fork()
        if child == 0:
            os._exit(0 if ranges.lock.acquire(timeout=1) and ranges.widening is None else 1)
    ranges.widening = None
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

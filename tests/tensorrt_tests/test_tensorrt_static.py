"""``load(path, with_trt=True)``: a double of TensorRT serves static models first, with the next engines behind it."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fake_cupy
import numpy as np
import pytest
from decorated import LASTING, builds, record
from double import World

from hybrid_infer import InputSpec, StaticModelError, _background, _demanded, _trt, load, save
from hybrid_infer._request import Request
from hybrid_infer._types import TF32
from hybrid_infer.backends._cuda import _memory
from hybrid_infer.backends.tensorrt import _probe
from hybrid_infer.frontends import cupy as cupy_frontend
from hybrid_infer.static import _static_ranges

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.out = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
        self.scale = torch.nn.Parameter(torch.arange(2.0))

    def forward(self, x: Any) -> Any:
        return {"y": self.out(torch.relu(self.linear(x))) * self.scale, "given": x, "scale": self.scale}


def points(count: int) -> Any:
    return np.random.default_rng(count).standard_normal((count, 4)).astype(np.float32)


def expected(count: int, layer: Any = None) -> Any:
    with torch.no_grad():
        return (layer or Net())(torch.from_numpy(points(count)))["y"].numpy()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """The path of the static model of a layer, which is made once for each spec."""
    found: dict[str, str] = {}

    def saved(spec: InputSpec | None = None) -> str:
        spec = spec or InputSpec([None, 4], name="x")
        if repr(spec) not in found:
            found[repr(spec)] = str(tmp_path_factory.mktemp("static") / "model")
            save(Net(), found[repr(spec)], [spec], trainable=False)
        return found[repr(spec)]

    return saved


@pytest.fixture(autouse=True)
def unsaid() -> None:
    _demanded.say_absent.cache_clear()
    _demanded.say_passed_over.cache_clear()


class Kind:
    """Tensors of a framework that pass for a GPU's, from NumPy's and back."""

    def __init__(self, name: str, tensor: Callable[[Any], Any], array: Callable[[Any], Any]) -> None:
        self.name, self.tensor, self.array = name, tensor, array

    def check(self, model: Any, *counts: int, layer: Any = None, tolerance: float = 1e-5) -> None:
        for n in counts:
            given = self.tensor(points(n))
            found = model(given)
            assert type(found["y"]) is type(given) and found["given"] is given
            np.testing.assert_allclose(self.array(found["y"]), expected(n, layer), rtol=tolerance, atol=tolerance)


@pytest.fixture(params=["torch", "paddle", "cupy"])
def kind(request: pytest.FixtureRequest, on_the_host: None, monkeypatch: pytest.MonkeyPatch) -> Kind:
    monkeypatch.setattr(_trt, "DEVICES", ("cpu", "cuda", "gpu"))
    if request.param == "torch":
        return Kind("torch", torch.from_numpy, lambda tensor: tensor.detach().numpy())
    if request.param == "paddle":
        paddle = pytest.importorskip("paddle")
        return Kind("paddle", paddle.to_tensor, lambda tensor: tensor.numpy())
    monkeypatch.setattr(_memory, "reserve", lambda memory, megabytes: None)
    made = fake_cupy.stand_in(fake_cupy.World())
    monkeypatch.setitem(sys.modules, "cupy", made)
    monkeypatch.setattr(cupy_frontend, "FRONTEND", cupy_frontend.CupyFrontend())
    return Kind("cupy", made.asarray, made.asnumpy)


@pytest.fixture
def host(on_the_host: None) -> Kind:
    return Kind("torch", torch.from_numpy, lambda tensor: tensor.detach().numpy())


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def runs(world: World) -> int:
    """Of calls, and of each plan that was built once more, for a comparison."""
    return world.counts["IExecutionContext.execute_async_v3"]


def loads(world: World) -> int:
    return world.counts["Runtime.deserialize_cuda_engine"]


# First


def test_it_is_asked_first_and_serves_in_place(world: World, kind: Kind, models: Any, caplog: Any) -> None:
    model = load(models(), with_trt=True)
    kind.check(model, 3, 3, 3)
    assert builds(world) == 1 and runs(world) == 4 and loads(world) == 1
    assert world.counts["Refitter.set_named_weights"] >= 4
    assert not warned(caplog)


def test_a_new_process_builds_no_plan_and_neither_does_another_training(
    world: World, kind: Kind, models: Any, store: Path, tmp_path: Path
) -> None:
    kind.check(load(models(), with_trt=True), 3)
    kind.check(load(models(), with_trt=True), 3)
    other = Net()
    with torch.no_grad():
        for each in other.parameters():
            each += 0.25
    save(other, tmp_path / "other", [InputSpec([None, 4], name="x")], trainable=False)
    kind.check(load(tmp_path / "other", with_trt=True), 3, layer=other)
    assert builds(world) == 1 and loads(world) == 3
    assert len(list(store.rglob("engine.plan"))) == 1


@pytest.mark.parametrize("told", [TF32(), TF32(convolutions=True, recurrent=True)])
def test_it_is_compared_once_whatever_the_framework_may_round(
    told: TF32, world: World, host: Any, models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Request, "tf32", property(lambda self: told))  # as for tensors of a GPU
    compared, compare = [], _static_ranges.Ranged._compare
    monkeypatch.setattr(_static_ranges.Ranged, "_compare", lambda *args: (compared.append(args), compare(*args))[1])
    for _ in range(3):  # as in three processes
        host.check(load(models(), with_trt=True), 3, 3, 3)
    assert len(compared) == 1 and builds(world) == 1


def test_other_weights_are_refitted(world: World, kind: Kind, models: Any) -> None:
    model, other = load(models(), with_trt=True), Net()
    kind.check(model, 3)
    with torch.no_grad():
        for each in other.parameters():
            each += 0.25
    model.set_state_dict({name: each.detach().numpy() for name, each in other.named_parameters()})
    kind.check(model, 3, 3, layer=other)
    model.release()
    kind.check(model, 3, layer=other)
    assert builds(world) == 1 and world.counts["Refitter.refit_cuda_engine_async"] == 3


def test_weights_of_the_model_are_not_watched(world: World, host: Kind, models: Any, monkeypatch: Any) -> None:
    from host_memory import TorchHost

    def asked(self: Any, tensors: Any) -> Any:
        raise AssertionError("nobody else can write to them")

    monkeypatch.setattr(TorchHost, "spread", asked)
    host.check(load(models(), with_trt=True), 3, 3)
    assert runs(world) == 3


def test_a_model_that_is_dropped_goes_at_once(world: World, host: Kind, models: Any) -> None:
    """Memory of a GPU does not wait for Python's collector of cycles."""
    model = load(models(), with_trt=True)
    host.check(model, 4, 4, 5)
    _background.wait()
    host.check(model, 5)
    ((built,),) = (loaded.values() for loaded in model._programs._ranged._loaded.values())
    program = weakref.ref(built.program)
    del built
    gc.disable()
    try:
        del model
        assert program() is None
    finally:
        gc.enable()


def test_by_its_name(world: World, host: Kind, models: Any) -> None:
    model = load(models(), backend=["tensorrt", "onnxruntime"])
    host.check(model, 3)
    assert builds(world) == 1
    world.refused = {"Relu", "Gemm", "MatMul", "Mul", "Add"}
    model = load(models(), backend="tensorrt", trt_precision_mode="float16")
    with pytest.raises(StaticModelError, match="tensorrt"):
        model(torch.from_numpy(points(3)))


def test_several_methods_and_integers(world: World, host: Kind, tmp_path: Path) -> None:
    from hybrid_infer import inference

    class Two(torch.nn.Module):
        @inference
        def forward(self, x: Any) -> Any:
            return x * 2

        @inference
        def rows(self, x: Any, n: int) -> Any:
            return x * n + 1

    layer = Two()
    for n in (3, 4, 5):
        layer(torch.ones(n, 4))
        layer.rows(torch.ones(n, 4), n)
    save(layer, tmp_path / "two", trainable=False)
    model = load(tmp_path / "two", with_trt=True)
    for n in (3, 7):
        x = torch.from_numpy(points(n))
        torch.testing.assert_close(model(x), x * 2)
        torch.testing.assert_close(model.rows(x, n), x * n + 1)
    assert builds(world) >= 2 and runs(world) >= 2


# Sizes


def test_saved_ranges_make_the_profile(world: World, kind: Kind, models: Any) -> None:
    spec = InputSpec([None, 4], "float32", "x", min=[2, 4], opt=[8, 4], max=[32, 4])
    model = load(models(spec), with_trt=True)
    kind.check(model, 5, 2, 32)
    assert list(world.profiles[0].values()) == [((2, 4), (8, 4), (32, 4))]
    assert builds(world) == 1 and runs(world) == 5  # compared at 5 rows, and again at 32


def test_beyond_the_profile_the_next_engine_answers_while_a_wider_plan_is_built(
    world: World, kind: Kind, models: Any, store: Path, caplog: Any
) -> None:
    model = load(models(), with_trt=True)
    kind.check(model, 4)
    kind.check(model, 5)
    assert runs(world) == 2
    _background.wait()
    assert builds(world) == 2
    kind.check(model, 5, 8, 4)
    assert builds(world) == 2 and runs(world) == 7  # compared at 4 and 5 rows, by each plan, and at 8
    assert [[[4, 4], [5, 4], [8, 4]]] in [each["profile"] for each in record(store)]
    assert not [each for each in warned(caplog) if "TensorRT" in each]
    again = load(models(), with_trt=True)  # as the next process, which knows the range
    kind.check(again, 8, 4)
    assert builds(world) == 2


def test_sizes_that_creep_up_need_few_plans(world: World, host: Kind, models: Any) -> None:
    model = load(models(), with_trt=True)
    for n in range(2, 60):
        host.check(model, n)
        _background.wait()
    assert builds(world) <= 7
    (loaded,) = model._programs._ranged._loaded.values()
    assert len(loaded) == 1


def test_plans_for_exact_sizes_are_bounded(world: World, host: Kind, models: Any) -> None:
    model = load(models(), with_trt=True, trt_use_static=True)
    host.check(model, *range(2, 13))
    assert builds(world) == 11 and all(low == high for p in world.profiles for low, _, high in p.values())
    (loaded,) = model._programs._ranged._loaded.values()
    assert len(loaded) == 8
    host.check(model, 2)
    assert builds(world) == 11 and loads(world) == 12  # the plan was kept


# What it is told


def test_the_precision_is_its_own(world: World, kind: Kind, models: Any) -> None:
    model = load(models(), with_trt=True, trt_precision_mode="float16")
    kind.check(model, 3, tolerance=1e-2)
    found = kind.array(model(kind.tensor(points(3)))["y"])
    assert found.dtype == np.float32 and not np.array_equal(found, expected(3))


def test_without_optimisation_and_on_no_disk(world: World, host: Kind, models: Any, store: Path) -> None:
    for _ in range(2):
        host.check(load(models(), with_trt=True, switch_ir_optim=False, cache_static_model=False), 3, 3)
    assert world.levels == [0, 0] and not list(store.rglob("engine.plan"))


def test_plans_lie_where_they_are_wanted(world: World, host: Kind, models: Any, tmp_path: Path, store: Path) -> None:
    host.check(load(models(), with_trt=True, save_model_dir=tmp_path / "plans"), 3)
    assert list((tmp_path / "plans").rglob("engine.plan")) and not store.exists()


def test_a_plan_that_others_could_have_written_is_made_anew(world: World, host: Kind, models: Any, store: Path) -> None:
    host.check(load(models(), with_trt=True), 3)
    (plan,) = store.rglob("engine.plan")
    plan.parent.chmod(0o770)
    host.check(load(models(), with_trt=True), 3)
    assert builds(world) == 2


def test_no_plan_is_taken_from_the_model_itself(world: World, host: Kind, models: Any, store: Path) -> None:
    """A plan is code, and the file may be anybody's."""
    from hybrid_infer.static._model import Plan

    host.check(load(models(), with_trt=True), 3)
    (plan,) = store.rglob("engine.plan")
    model = load(models(), with_trt=True, cache_static_model=False)
    for saved in model._model.methods["forward"].versions:
        saved.plans[plan.parent.name] = Plan((), (), lambda: {"engine.plan": b"evil", "plan.json": b"{}"})
    host.check(model, 3)
    assert builds(world) == 2


# What fails


def test_what_it_refuses_the_next_engine_serves_with_one_warning(
    world: World, kind: Kind, models: Any, caplog: Any
) -> None:
    world.refused = {"Relu"}
    model = load(models(), with_trt=True)
    kind.check(model, 3, 5, 3)
    (said,) = [each for each in warned(caplog) if "with_trt=True" in each]
    assert "no importer for Relu" in said and runs(world) == 0
    asked = world.counts["OnnxParser.parse_model_proto"]
    kind.check(load(models(), with_trt=True), 3)
    assert world.counts["OnnxParser.parse_model_proto"] == asked  # it is remembered on disk


def test_a_build_that_fails_for_good_is_not_tried_again(world: World, host: Kind, models: Any, caplog: Any) -> None:
    world.false["Builder.build_serialized_network"] = None
    world.said["Builder.build_serialized_network"] = LASTING
    for _ in range(2):
        host.check(load(models(), with_trt=True), 3, 3)
    model = load(models(), with_trt=True)
    host.check(model, 3, 5, 6)
    (said,) = warned(caplog)
    assert "Could not find any implementation" in said and builds(world) == 1


def test_what_lies_in_the_moment_is_tried_again(
    world: World, host: Kind, models: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.false["Builder.build_serialized_network"] = None
    model = load(models(), with_trt=True)
    host.check(model, 3, 3, 5)
    assert builds(world) == 1 and len(warned(caplog)) == 1
    del world.false["Builder.build_serialized_network"]
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + 301)
    host.check(model, 3)
    assert builds(world) == 2 and runs(world) == 2


def test_a_wider_plan_that_fails_leaves_the_next_engine_in_place(
    world: World, host: Kind, models: Any, caplog: Any
) -> None:
    model = load(models(), with_trt=True)
    host.check(model, 4)
    world.false["Builder.build_serialized_network"] = None
    world.said["Builder.build_serialized_network"] = LASTING
    host.check(model, 9)
    _background.wait()
    host.check(model, 9, 9, 4)
    assert builds(world) == 2 and runs(world) == 3
    assert caplog.text.count("serves no more sizes than before") == 1


def test_a_run_that_fails_is_answered_by_the_next_engine(world: World, kind: Kind, models: Any, caplog: Any) -> None:
    model = load(models(), with_trt=True)
    kind.check(model, 3)
    world.false["IExecutionContext.execute_async_v3"] = False
    kind.check(model, 3, 3)
    (said,) = [each for each in warned(caplog) if "with_trt=True" in each]
    assert "its run could not be started" in said and runs(world) == 3


def test_a_plan_that_is_wrong_is_not_used(world: World, kind: Kind, models: Any, caplog: Any) -> None:
    world.wrong = {1, 2, 3}
    for _ in range(2):
        kind.check(load(models(), with_trt=True), 3, 5)
    (said,) = [each for each in warned(caplog) if "with_trt=True" in each]
    assert "computes something else than an engine on the CPU: result 0" in said and builds(world) == 1


def test_a_wider_plan_that_is_wrong_takes_no_sizes_over(world: World, host: Kind, models: Any, caplog: Any) -> None:
    world.wrong = {2}
    model = load(models(), with_trt=True)
    for n in (4, 5, 5, 4, 6, 4):
        host.check(model, n)
        _background.wait()
    assert builds(world) == 2
    before = runs(world)
    host.check(model, 4, 5)
    assert runs(world) == before + 1


def test_where_nothing_can_be_compared_it_serves(
    world: World, host: Kind, models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(models(), backend=["tensorrt"])
    host.check(model, 3, 3)
    assert runs(world) == 3


def test_a_plan_that_is_not_taken_is_made_anew(world: World, host: Kind, models: Any) -> None:
    from hybrid_infer import CacheWarning

    host.check(load(models(), with_trt=True), 3)
    world.libraries += 1
    with pytest.warns(CacheWarning, match="is made anew"):
        host.check(load(models(), with_trt=True), 3)
    assert builds(world) == 2


def test_without_memory_for_the_weights_it_is_tried_again_later(
    world: World, host: Kind, models: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    from host_memory import TorchHost

    def full(self: Any, array: Any) -> Any:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(TorchHost, "upload", full)
    model = load(models(), with_trt=True)
    host.check(model, 3, 3)
    (said,) = warned(caplog)
    assert "CUDA out of memory" in said and builds(world) == 1
    monkeypatch.undo()


def test_a_plan_is_built_once_and_the_others_do_not_wait(world: World, host: Kind, models: Any) -> None:
    load(models(), backend="onnxruntime")(torch.from_numpy(points(3)))
    model = load(models(), with_trt=True)
    begun, go = threading.Event(), threading.Event()

    def step(number: int) -> None:
        begun.set()
        assert go.wait(60)

    world.at_step = step
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(host.check, model, 3)
        assert begun.wait(60)
        pool.submit(host.check, model, 3).result()
        assert runs(world) == 0
        go.set()
        first.result()
    time.sleep(1.1)
    host.check(model, 3)
    assert builds(world) == 1 and runs(world) >= 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_child_waits_for_no_thread_of_its_parent(world: World, host: Kind, models: Any) -> None:
    model = load(models(), with_trt=True)
    host.check(model, 3)
    ranged = model._programs._ranged
    (held,) = ranged._versions.values()
    with ranged._lock, held.ranges.lock:
        child = os.fork()
        if child == 0:
            free = ranged._lock.acquire(timeout=1) and held.ranges.lock.acquire(timeout=1)
            os._exit(0 if free and not ranged._loaded else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Where it is absent


def test_where_it_is_absent_one_warning_says_why_and_what_installs_it(
    models: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = f"the package tensorrt is not installed: {_probe.INSTALL}"
    monkeypatch.setattr(_probe, "missing", lambda: reason)
    given = points(3)
    for _ in range(2):
        model = load(models(), with_trt=True)
        (said,) = warned(caplog)
        assert said.endswith(f"with_trt=True: the next engine serves instead of TensorRT: {reason}")
        np.testing.assert_allclose(model(given)["y"], expected(3), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(model(torch.from_numpy(given))["y"], expected(3), rtol=1e-5, atol=1e-5)
    assert len(warned(caplog)) == 1


def test_arrays_and_tensors_on_the_processor_are_not_its(
    world: World, models: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model = load(models(), with_trt=True)
    assert not warned(caplog)
    for given in (points(3), torch.from_numpy(points(3))):
        np.testing.assert_allclose(model(given)["y"], expected(3), rtol=1e-5, atol=1e-5)
    (said,) = warned(caplog)
    assert "the tensors of the call are on the device 'cpu'" in said and not builds(world)


def test_without_it_nothing_is_said(models: Any, caplog: pytest.LogCaptureFixture) -> None:
    load(models())(points(3))
    assert not warned(caplog)

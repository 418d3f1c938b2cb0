"""Engines are measured against the eager method, in turn with eager work; the choice is kept."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_support import Block, counts, same, twice

import hybrid_infer
from hybrid_infer import _choice, _dispatch, _probes, _router, inference, stance
from hybrid_infer._errors import EngineError

pytestmark = pytest.mark.torch

X = torch.linspace(-1, 1, 8).reshape(2, 4)


@pytest.fixture(autouse=True)
def automatic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Mapping[str, float]]]:
    """The figures of each measurement."""
    found: list[Mapping[str, float]] = []
    real = _choice.measure

    def measure(*args: Any) -> _choice.Figures:
        figures = real(*args)
        found.append(figures.seconds)
        return figures

    monkeypatch.setattr(_choice, "measure", measure)
    yield found


def decided(monkeypatch: pytest.MonkeyPatch, *, steady: bool = True, **seconds: float) -> list[int]:
    """Figures that a measurement shall give; returns a list that grows by one at each."""
    times: list[int] = []

    def measure(work: Callable[[], Any], runs: Mapping[str, Callable[[], Any]]) -> _choice.Figures:
        work()
        for run in runs.values():
            run()
        times.append(1)
        return _choice.Figures({name: seconds.get(name, 99.0) for name in ("eager", *runs)}, steady)

    monkeypatch.setattr(_choice, "measure", measure)
    return times


def spoil(monkeypatch: pytest.MonkeyPatch, spoiled: Callable[[Any], Any]) -> None:
    """What OpenVINO computes goes through `spoiled`."""
    openvino = pytest.importorskip("hybrid_infer.backends.openvino")
    pytest.importorskip("openvino")
    load = openvino.OpenVino.load

    def loaded(*args: Any) -> Any:
        program = load(*args)
        run = program.run
        program.run = lambda arrays: spoiled(run(arrays))
        return program

    monkeypatch.setattr(openvino.OpenVino, "load", loaded)


def routes(layer: Any) -> list[Any]:
    return list(type(layer).forward.__hybrid_infer__.states[id(layer)][1].routes.values())


class Affine(Block):
    """What OpenVINO computes as the eager method does, NaNs and infinities included."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


class Folded(torch.nn.Module):
    """Most of its work depends on weights alone: an engine does it once."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.scale
        for _ in range(300):
            scale = scale * 1.001
        return x * scale


def test_an_engine_that_is_faster_serves(measured: list[Mapping[str, float]]) -> None:
    class Hot(Folded):
        forward = inference(fallback="error")(Folded.forward)

    layer = Hot()
    twice(layer, Folded.forward.__get__(layer), X)
    assert counts()["hits"] == 1 and counts()["eager_calls"] == 0  # the first is answered by what it is verified with
    assert len(measured) == 1 and measured[0]["onnxruntime"] * 1.05 <= measured[0]["eager"]


def test_a_method_that_no_engine_makes_faster_stays_eager_and_says_so(
    measured: list[Mapping[str, float]], caplog: pytest.LogCaptureFixture
) -> None:
    class Tiny(Block):
        @inference(fallback="error")  # which it is not: nothing failed
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    layer = Tiny()
    with caplog.at_level(logging.INFO, "hybrid_infer"), torch.no_grad():
        for _ in range(200):
            assert torch.equal(layer(X), X + 1)
    assert len(measured) == 1 and measured[0]["onnxruntime"] * 1.05 > measured[0]["eager"]
    assert counts()["fallbacks"] == {_router.SLOWER: 199}
    assert counts()["captures"] == 1 and counts()["bindings"] == 0
    assert not [r for r in caplog.records if r.levelno > logging.INFO]
    [line] = [r.getMessage() for r in caplog.records if "stays eager" in r.getMessage()]
    assert "eager" in line and "onnxruntime" in line and " us" in line


def test_a_choice_is_for_calls_of_about_that_size(
    measured: list[Mapping[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_dispatch, "_REST", 0)

    class Hot(Block):
        forward = inference()(Block.forward)

    layer = Hot()
    eager = Block.forward.__get__(layer)
    for rows in (40, 41, 42, 60):
        twice(layer, eager, X[:1].repeat(rows, 1))
    assert len(measured) == 2  # for each static model
    twice(layer, eager, X[:1].repeat(6000, 1))
    assert len(measured) == 3
    for rows in (50, 6100, 45, 5900):
        twice(layer, eager, X[:1].repeat(rows, 1))
    assert len(measured) == 3
    assert counts()["captures"] == 2


def test_instances_share_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    times = decided(monkeypatch, eager=2.0, onnxruntime=1.0)
    for _ in range(5):
        layer = Hot()
        twice(layer, Block.forward.__get__(layer), X)
    assert len(times) == 1
    assert (counts()["captures"], counts()["bindings"], counts()["eager_calls"]) == (1, 5, 0)


@pytest.mark.parametrize(("engine", "serves"), [(0.5, True), (0.9, True), (0.99, False), (1.5, False)])
def test_an_engine_has_to_beat_the_eager_method(monkeypatch: pytest.MonkeyPatch, engine: float, serves: bool) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    decided(monkeypatch, eager=1.0, onnxruntime=engine)
    layer = Hot()
    twice(layer, Block.forward.__get__(layer), X)
    assert bool(counts()["hits"]) == serves and bool(counts()["fallbacks"]) != serves


@pytest.mark.parametrize("how", ["option", "list", "environment", "always"])
def test_a_choice_of_the_user_is_not_questioned(
    monkeypatch: pytest.MonkeyPatch, measured: list[Mapping[str, float]], how: str
) -> None:
    if how == "environment":
        monkeypatch.setenv("HYBRID_INFER_BACKEND", "onnxruntime")
    options: dict[str, Any] = {
        "option": {"backend": "onnxruntime"}, "list": {"backend": ["onnxruntime", "openvino"]}, "environment": {},
        "always": {"verify": "always"},
    }[how]  # fmt: skip

    class Hot(Block):
        forward = inference(**options)(Block.forward)

    layer = Hot()
    twice(layer, Block.forward.__get__(layer), X)
    assert not measured and counts()["hits"] and not counts()["eager_calls"]


def test_a_kept_choice_is_taken_over_and_not_measured_again(monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    times = decided(monkeypatch, eager=1.0, onnxruntime=9.0)
    layer = Hot()
    twice(layer, Block.forward.__get__(layer), X)
    hybrid_infer.release(layer)
    twice(layer, Block.forward.__get__(layer), X)
    assert len(times) == 1 and counts()["fallbacks"][_router.SLOWER] == 3
    manifests = [json.loads(path.read_text()) for path in store.rglob("plans/*/*.json")]
    assert [m["meta"]["choice"] for m in manifests if "choice" in m.get("meta", {})] == ["eager"]


def test_figures_of_a_busy_machine_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    times = decided(monkeypatch, steady=False, eager=1.0, onnxruntime=9.0)
    layer = Hot()
    twice(layer, Block.forward.__get__(layer), X)
    assert len(times) == 1
    hybrid_infer.release(layer)
    twice(layer, Block.forward.__get__(layer), X)
    assert len(times) == 2


def test_a_choice_that_cannot_be_read_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    layer = Hot()
    monkeypatch.setattr(_choice.Choice, "to_meta", lambda self: {"choice": "eager", "seconds": ["later format"]})
    times = decided(monkeypatch, eager=1.0, onnxruntime=0.5)
    twice(layer, Block.forward.__get__(layer), X)
    hybrid_infer.release(layer)
    twice(layer, Block.forward.__get__(layer), X)
    assert len(times) == 2 and counts()["hits"] == 3


def test_an_eager_choice_sees_every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        scale = 1.0

        @inference()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.scale

    decided(monkeypatch, eager=1.0, onnxruntime=9.0)
    layer = Hot()
    with torch.no_grad():
        for n in range(150):
            layer.scale = float(n)
            layer.linear.weight.add_(0.01)
            same(layer(X), Block.forward(layer, X) * n)
    assert counts()["captures"] <= 3  # each time that a method which is left alone is looked at again


def test_large_calls_are_served_among_small_ones_that_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    layer = Hot()
    eager = Block.forward.__get__(layer)
    large = X[:1].repeat(4000, 1)
    decided(monkeypatch, eager=1.0, onnxruntime=9.0)
    twice(layer, eager, X)
    decided(monkeypatch, eager=9.0, onnxruntime=1.0)
    with torch.no_grad():
        for _ in range(200):
            layer(X)
        for _ in range(100):  # by now a method that is left alone for a while has been looked at again
            layer(large)
    hits = counts()["hits"]
    assert hits > 0
    for _ in range(5):
        twice(layer, eager, X)
        twice(layer, eager, large)
    assert counts()["hits"] == hits + 10


def test_threads_that_come_while_it_is_measured_are_answered() -> None:
    class Hot(Folded):
        forward = inference()(Folded.forward)

    layer = Hot()
    expected = Folded.forward(layer, X).detach()
    wrong: list[Any] = []

    def work() -> None:
        with torch.no_grad():
            for _ in range(20):
                if not torch.allclose(layer(X), expected, rtol=1e-4):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and counts()["captures"] == 1


@pytest.mark.parametrize(
    ("method", "serves"),
    [
        (lambda layer, x: layer.linear(x), "openvino"),
        (lambda layer, x: torch.relu(layer.linear(x)), "onnxruntime"),
        (lambda layer, x: layer.linear(x).clamp(min=-1), "onnxruntime"),
    ],
    ids=["linear", "relu", "clamp"],
)
def test_openvino_is_chosen_where_it_keeps_nans(monkeypatch: pytest.MonkeyPatch, method: Any, serves: str) -> None:
    pytest.importorskip("openvino")

    class Hot(Block):
        @inference(fallback="error")
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return method(self, x)

    decided(monkeypatch, eager=3.0, onnxruntime=2.0, openvino=1.0)
    layer = Hot()
    twice(layer, lambda x: method(layer, x), X)
    [route] = Hot.forward.__hybrid_infer__.states[id(layer)][1].routes.values()  # type: ignore[attr-defined]
    assert route.program.engine == serves
    spoiled = X.clone()
    spoiled[1, 2] = torch.nan
    twice(layer, lambda x: method(layer, x), spoiled)


def test_probes_leave_the_call_and_its_arguments_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino")

    class Indexed(Block):
        @inference()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)[(x[:, 0] > -9).long()]  # a NaN picks another row

    decided(monkeypatch, eager=3.0, onnxruntime=2.0, openvino=1.0)
    layer, x = Indexed(), X.clone()
    with torch.no_grad():
        same(layer(x), Block.forward(layer, x)[[1, 1]])
        same(layer(x), Block.forward(layer, x)[[1, 1]])
    assert torch.equal(x, X)


def test_figures_and_units() -> None:
    choice = _choice.choose(_choice.Figures({"eager": 3e-3, "onnxruntime": 12e-6}))
    assert choice.name == "onnxruntime" and str(choice) == "onnxruntime 12 us, eager 3 ms"
    assert _choice.Choice.from_meta(json.loads(json.dumps(choice.to_meta()))) == choice


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 0.2, 20.0])
def test_what_is_measured_is_the_time_added_to_eager_work(monkeypatch: pytest.MonkeyPatch, unit: float) -> None:
    """On a clock that only the candidates move; a call of the last one takes longer right after eager work."""
    clock, calls, last = [0.0], [0], [""]
    monkeypatch.setattr(_choice.time, "perf_counter", lambda: clock[0])

    def candidate(name: str, seconds: float, more: float = 0.0) -> Callable[[], None]:
        def run() -> None:
            clock[0] += seconds + (more if last[0] == "eager" else 0.0)
            last[0] = name
            calls[0] += 1

        return run

    found = _choice.measure(
        candidate("eager", unit),
        {
            "half": candidate("half", unit / 2),
            "double": candidate("double", 2 * unit),
            "fighting": candidate("fighting", unit / 2, unit),
        },
    )
    expected = {"eager": unit, "half": unit / 2, "double": 2 * unit, "fighting": 1.5 * unit}
    assert found.steady and found.seconds == pytest.approx(expected, rel=1e-3)
    assert clock[0] < max(1.0, 20 * unit), "a long call is not run often"
    assert calls[0] < 20_000


def test_figures_that_vary_are_not_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], [0]
    monkeypatch.setattr(_choice.time, "perf_counter", lambda: clock[0])

    def run() -> None:
        calls[0] += 1
        clock[0] += 1e-3 * (1 + calls[0] // 10 % 3)

    assert not _choice.measure(run, {"same": run}).steady


def test_an_engine_is_compared_before_it_is_chosen_for_another_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """That another engine's plan of the version is known to be right says nothing about its own."""
    spoil(monkeypatch, lambda arrays: [array + 1 for array in arrays])

    class Hot(Affine):
        forward = inference()(Affine.forward)

    layer = Hot()
    decided(monkeypatch, eager=3.0, onnxruntime=2.0, openvino=1.0)
    for rows in (40, 41, 6000):
        twice(layer, Affine.forward.__get__(layer), X[:1].repeat(rows, 1))
    assert {route.program.engine for route in routes(layer)} == {"onnxruntime"}


def test_an_engine_that_fails_when_it_runs_is_not_considered(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> Any:
        raise EngineError("openvino", "out of order")

    spoil(monkeypatch, fail)

    class Hot(Affine):
        forward = inference(verify="off", fallback="error")(Affine.forward)

    decided(monkeypatch, eager=3.0, onnxruntime=2.0, openvino=1.0)
    layer = Hot()
    twice(layer, Affine.forward.__get__(layer), X)
    assert [route.program.engine for route in routes(layer)] == ["onnxruntime"]


def test_an_engine_that_fails_while_it_is_timed_costs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Affine):
        forward = inference()(Affine.forward)

    def measure(*_: Any) -> Any:
        raise EngineError("onnxruntime", "out of memory")

    monkeypatch.setattr(_choice, "measure", measure)
    layer = Hot()
    twice(layer, Affine.forward.__get__(layer), X)
    assert not routes(layer)


def test_one_program_serves_all_scales_for_which_its_engine_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    layer = Hot()
    decided(monkeypatch, eager=2.0, onnxruntime=1.0)
    for rows in (40, 41, 6000, 42):
        twice(layer, Block.forward.__get__(layer), X[:1].repeat(rows, 1))
    memo = type(layer).forward.__hybrid_infer__.states[id(layer)][1].memo  # type: ignore[attr-defined]
    assert len(routes(layer)) == 1
    assert {id(route.program) for route in memo.values()} == {id(routes(layer)[0].program)}


def test_a_choice_is_for_a_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    layer, threads = Hot(), torch.get_num_threads()
    times = decided(monkeypatch, eager=1.0, onnxruntime=9.0)
    try:
        for width in (1, 2, 1):
            torch.set_num_threads(width)
            hybrid_infer.release(layer)
            layer(X)
    finally:
        torch.set_num_threads(threads)
    assert len(times) == 2


def test_a_choice_is_for_weights_that_are_bound_or_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    times = decided(monkeypatch, eager=1.0, onnxruntime=9.0)
    for weights in ("bound", "live", "bound"):
        inference(Block(), weights=weights)(X)
    assert len(times) == 2


def test_engines_are_measured_where_no_gradients_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    recorded: list[bool] = []

    def measure(work: Callable[[], Any], runs: Mapping[str, Callable[[], Any]]) -> _choice.Figures:
        recorded.append(work().requires_grad)
        return _choice.Figures({"eager": 2.0, "onnxruntime": 1.0})

    monkeypatch.setattr(_choice, "measure", measure)
    layer = Hot()
    assert layer(X).requires_grad and layer(X).requires_grad
    assert recorded == [False]


def test_what_was_warmed_up_serves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    layer, large = Hot(), X[:1].repeat(4000, 1)
    decided(monkeypatch, eager=1.0, onnxruntime=9.0)
    twice(layer, Block.forward.__get__(layer), X)
    decided(monkeypatch, eager=9.0, onnxruntime=1.0)
    hybrid_infer.warmup(layer, large)
    twice(layer, Block.forward.__get__(layer), large)
    assert counts()["hits"] == 2


def test_a_method_left_alone_says_all_the_same_that_it_may_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    layer = Hot()
    decided(monkeypatch, eager=1.0, onnxruntime=9.0)
    twice(layer, Block.forward.__get__(layer), X)
    with stance("fail_on_compile"):
        layer(X)
        with pytest.raises(hybrid_infer.StanceError):
            layer(X[:1].repeat(4000, 1))


def test_threads_that_count_down_at_once_do_not_leave_a_method_alone_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    layer = Hot()
    decided(monkeypatch, eager=2.0, onnxruntime=1.0)
    twice(layer, Block.forward.__get__(layer), X)
    type(layer).forward.__hybrid_infer__.states[id(layer)][1].rest = -1  # type: ignore[attr-defined]
    layer(X)
    assert counts()["hits"] == 2


def test_an_eager_choice_is_about_the_attributes_that_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deep(Block):
        steps = 1

        @inference()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(self.steps):
                x = self.linear(x)
            return x

    layer = Deep()
    decided(monkeypatch, eager=1.0, onnxruntime=9.0)
    with torch.no_grad():
        layer(X)
        layer.steps = 3
        decided(monkeypatch, eager=9.0, onnxruntime=1.0)
        for _ in range(70):
            same(layer(X), layer.linear(layer.linear(layer.linear(X))))
    assert counts()["hits"] > 0


def test_only_one_thread_measures_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    layers = [Hot() for _ in range(2)]
    times: list[int] = []
    other: list[threading.Thread] = []

    def measure(*_: Any) -> _choice.Figures:
        times.append(1)
        if not other:
            other.append(threading.Thread(target=lambda: same(layers[1](X), Block.forward(layers[1], X))))
            other[0].start()
            other[0].join(60)
            assert not other[0].is_alive()
        return _choice.Figures({"eager": 2.0, "onnxruntime": 1.0}, steady=False)

    decided(monkeypatch, eager=1.0, onnxruntime=9.0, steady=False)
    layers[0](X)
    for state in type(layers[0]).forward.__hybrid_infer__.states.values():  # type: ignore[attr-defined]
        for held in state[1].family.held if state[1].family else ():
            held.choices.clear()
        state[1].release()
    monkeypatch.setattr(_choice, "measure", measure)
    for _ in range(2):
        for layer in layers:
            twice(layer, Block.forward.__get__(layer), X)
    assert times == [1] and counts()["hits"] > 0


def test_a_graph_that_is_damaged_when_another_engine_needs_it_is_captured_anew(
    monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    pytest.importorskip("openvino")

    class Hot(Affine):
        forward = inference()(Affine.forward)

    layer = Hot()
    decided(monkeypatch, steady=False, eager=3.0, onnxruntime=1.0, openvino=2.0)
    twice(layer, Affine.forward.__get__(layer), X)
    hybrid_infer.release(layer)
    for path in store.rglob("graph.onnx"):
        path.write_bytes(b"damaged" * (path.stat().st_size // 7))
    with pytest.warns(hybrid_infer.CacheWarning):
        twice(layer, Affine.forward.__get__(layer), X)
    assert counts()["captures"] == 2 and counts()["hits"] == 2


def test_a_loop_whose_turns_depend_on_values_is_not_tried_with_infinities(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may never end."""
    pytest.importorskip("openvino")

    class Halved(Block):
        @inference(fallback="error")
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = torch.while_loop(lambda x: x.max() > 0.1, lambda x: (x / 2,), (self.linear(x),))
            return found[0] if isinstance(found, tuple) else found

    monkeypatch.setattr(_probes, "difference", lambda *_: pytest.fail("tried"))
    decided(monkeypatch, eager=3.0, onnxruntime=2.0, openvino=1.0)
    layer = Halved()
    with torch.no_grad():
        layer(X)
    assert [route.program.engine for route in routes(layer)] == ["onnxruntime"]


def test_an_engine_that_takes_too_long_to_examine_is_not_considered(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino")

    class Hot(Affine):
        forward = inference()(Affine.forward)

    monkeypatch.setattr(_probes, "_SECONDS", 0.0)
    decided(monkeypatch, eager=3.0, onnxruntime=2.0, openvino=1.0)
    layer = Hot()
    twice(layer, Affine.forward.__get__(layer), X)
    assert [route.program.engine for route in routes(layer)] == ["onnxruntime"]

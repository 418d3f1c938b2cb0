"""Engines are measured against the eager method, in turn with eager work; the choice is kept."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from router_support import Affine, X, decided, routes, undecided
from torch_support import Block, counts, same, twice

import hybrid_infer
from hybrid_infer import _choice, _dispatch, _family, _provisional, _router, inference, stance
from hybrid_infer.cache import _files

pytestmark = pytest.mark.torch


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
    assert len(measured) == 1
    engines = [seconds for name, seconds in measured[0].items() if name != "eager"]
    assert min(engines) * 1.05 <= measured[0]["eager"]


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
    manifests = [json.loads(path.read_text()) for path in store.rglob("plans/*/manifest.json")]
    assert [m["meta"]["choice"] for m in manifests if "choice" in m.get("meta", {})] == ["eager"]


def test_figures_of_a_busy_machine_are_kept_for_a_while_ever_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    now = [1e9]
    monkeypatch.setattr(_provisional, "time", SimpleNamespace(time=lambda: now[0], monotonic=time.monotonic))
    times = decided(monkeypatch, steady=False, eager=1.0, onnxruntime=9.0)
    layer = Hot()
    for passed, measured in ((0.0, 1), (1.0, 1), (58.0, 1), (2.0, 2), (298.0, 2), (3.0, 3), (-1e6, 4), (1e6, 5)):
        now[0] += passed
        twice(layer, Block.forward.__get__(layer), X)
        assert len(times) == measured, passed
        hybrid_infer.release(layer)
    times = decided(monkeypatch, eager=1.0, onnxruntime=0.5)
    now[0] += 1e9
    for _ in range(2):
        twice(layer, Block.forward.__get__(layer), X)
        hybrid_infer.release(layer)
    assert len(times) == 1 and counts()["hits"] == 4  # compared while the eager method was ahead


@pytest.mark.parametrize(("eager", "measured"), [(1.0, 1), (0.9, 2)])
def test_an_engine_that_was_far_ahead_on_a_busy_machine_is_not_measured_again_at_once(
    eager: float, measured: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    now = [1e9]
    monkeypatch.setattr(_provisional, "time", SimpleNamespace(time=lambda: now[0], monotonic=time.monotonic))
    times = decided(monkeypatch, steady=False, eager=eager, onnxruntime=0.5)
    layer = Hot()
    twice(layer, Block.forward.__get__(layer), X)
    hybrid_infer.release(layer)
    now[0] += 1e6  # another process, long after
    twice(layer, Block.forward.__get__(layer), X)
    assert len(times) == measured and counts()["hits"] == 3  # all but the one that the static model was compared with


@pytest.mark.parametrize(("crowded", "measured"), [(True, 1), (False, 2)])
@pytest.mark.parametrize("engine", [0.9, 9.0])
def test_what_a_busy_machine_chose_stays_for_a_while_where_it_is_busy_still(
    engine: float, crowded: bool, measured: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each process measures again for seconds, and may capture what it finds otherwise: a cold start each time."""

    class Hot(Block):
        forward = inference()(Block.forward)

    now = [1e9]
    monkeypatch.setattr(_provisional, "time", SimpleNamespace(time=lambda: now[0], monotonic=time.monotonic))
    times = decided(monkeypatch, steady=False, crowded=crowded, eager=1.0, onnxruntime=engine)
    layer = Hot()
    for _ in range(2):
        twice(layer, Block.forward.__get__(layer), X)
        hybrid_infer.release(layer)
        now[0] += 1e6  # another process, long after
    assert len(times) == measured


def test_a_process_that_goes_on_measures_again_on_a_busy_machine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    now, mono = [1e9], [0.0]
    monkeypatch.setattr(_provisional, "time", SimpleNamespace(time=lambda: now[0], monotonic=lambda: mono[0]))
    monkeypatch.setattr(_choice, "time", SimpleNamespace(monotonic=lambda: mono[0]))
    times = decided(monkeypatch, steady=False, crowded=True, eager=1.0, onnxruntime=9.0)
    layer = Hot()
    twice(layer, Block.forward.__get__(layer), X)
    hybrid_infer.release(layer)
    now[0] += 1e6
    for seconds, measured in ((0.0, 1), (_provisional._LEFT_OVER + 1, 2)):
        mono[0] += seconds
        for _ in range(2 * _dispatch._REST):
            layer(X)
        assert len(times) == measured


@pytest.mark.parametrize("steady", [False, True])
@pytest.mark.parametrize(("engine", "measured"), [(9.0, 2), (0.4, 2), (0.9, 3)])
def test_a_choice_stays_where_a_wider_static_model_takes_over(
    engine: float, measured: int, steady: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process measured the first calls of a program anew that later ones had captured a wider model for.

    An engine that is but a little faster may be slower where sizes vary.
    """

    class Hot(Block):
        forward = inference()(Block.forward)

    times = decided(monkeypatch, steady=steady, eager=1.0, onnxruntime=engine)
    layer = Hot()
    with torch.no_grad():
        layer(X), layer(X[:1].repeat(4000, 1))
        assert len(times) == 2 and counts()["captures"] == 2
        for _ in range(2):
            hybrid_infer.release(layer)
            for _ in range(2):
                same(layer(X), Block.forward(layer, X))
    assert len(times) == measured and counts()["captures"] == 2


@pytest.mark.parametrize("steady", [False, True])
def test_a_choice_that_was_found_is_not_written_again(
    steady: bool, monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    """Else what was measured on a busy machine counts as measured just now, as often as a process starts."""

    class Hot(Block):
        forward = inference()(Block.forward)

    times = decided(monkeypatch, steady=steady, eager=1.0, onnxruntime=0.9)
    layer = Hot()
    twice(layer, Block.forward.__get__(layer), X)
    before = {path: path.stat().st_ino for path in store.rglob("*.json")}
    hybrid_infer.release(layer)
    with monkeypatch.context() as patched:
        patched.setattr(_files, "write_new", lambda *args, **kwargs: pytest.fail("it was written"))
        twice(layer, Block.forward.__get__(layer), X)
    assert {path: path.stat().st_ino for path in store.rglob("*.json")} == before
    assert len(times) == 1 and counts()["hits"] == 3


@pytest.mark.parametrize("note", [b"[1]", b"no JSON", b'{"KEY": 1}', b'{"KEY": {"choice": "onnxruntime"}}',
                                  b'{"KEY": {"choice": "none", "seconds": {}, "times": 1, "until": 1e12}}'])
def test_a_note_of_choices_that_cannot_be_read_is_replaced(
    note: bytes, monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    times = decided(monkeypatch, steady=False, eager=1.0, onnxruntime=9.0)
    layer = Hot()
    twice(layer, Block.forward.__get__(layer), X)
    (path,) = store.rglob(_provisional._NOTE)
    (key,) = json.loads(path.read_text())
    path.write_bytes(note.replace(b"KEY", key.encode()))
    for _ in range(2):
        hybrid_infer.release(layer)
        twice(layer, Block.forward.__get__(layer), X)
    assert len(times) == 2


@pytest.mark.parametrize(
    "record", [{"choice": "eager", "seconds": ["later format"]}, {"choice": "no engine", "seconds": {}}]
)
def test_a_choice_that_cannot_be_read_is_replaced(monkeypatch: pytest.MonkeyPatch, record: dict[str, Any]) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    layer = Hot()
    times = decided(monkeypatch, eager=1.0, onnxruntime=0.5)
    with monkeypatch.context() as patched:
        patched.setattr(_choice.Choice, "to_meta", lambda self: record)
        twice(layer, Block.forward.__get__(layer), X)
    hybrid_infer.release(layer)
    with pytest.warns(hybrid_infer.CacheWarning, match="holds no choice"):
        twice(layer, Block.forward.__get__(layer), X)
    hybrid_infer.release(layer)
    twice(layer, Block.forward.__get__(layer), X)
    assert len(times) == 2 and counts()["hits"] == 5


def test_what_served_where_nothing_may_be_measured_is_measured_later(
    monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    layer = Hot()
    eager = Block.forward.__get__(layer)
    with monkeypatch.context() as patched:
        decided(patched, steady=False, eager=2.0, onnxruntime=1.0)
        twice(layer, eager, X)
    undecided(store)  # a plan is on disk, and no choice
    hybrid_infer.release(layer)
    times = decided(monkeypatch, eager=1.0, onnxruntime=2.0)
    with stance("fail_on_compile"):
        for _ in range(2):
            twice(layer, eager, X)
    assert not times and counts()["hits"] == 5 and counts()["bindings"] == 2
    twice(layer, eager, X)
    assert len(times) == 1 and counts()["hits"] == 5 and not routes(layer)
    with stance("fail_on_compile"):
        twice(layer, eager, X)
    assert len(times) == 1 and counts()["hits"] == 5


def test_the_plan_of_a_method_that_stays_eager_is_kept_for_calls_of_other_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the next process would have to build it anew, and could not where nothing may be compiled."""
    monkeypatch.setattr(_dispatch, "_REST", 0)

    class Hot(Block):
        forward = inference()(Block.forward)

    layer = Hot()
    eager = Block.forward.__get__(layer)
    decided(monkeypatch, eager=1.0, onnxruntime=2.0)
    for rows in (40, 41):
        twice(layer, eager, X[:1].repeat(rows, 1))
    assert counts()["builds"] == 2 and not counts()["hits"]
    for allowed in ("fail_on_compile", "default"):
        hybrid_infer.release(layer)
        _family._FAMILIES.clear()  # as in the next process
        hybrid_infer.reset_stats()
        times = decided(monkeypatch, eager=2.0, onnxruntime=1.0)
        with stance(allowed):
            for rows in (6000, 41):
                twice(layer, eager, X[:1].repeat(rows, 1))
        assert counts()["builds"] == 0 and counts()["hits"] and len(times) == (allowed == "default")
        assert counts()["eager_calls"] == 2, "what was measured stays eager"


def test_one_change_of_a_weight_counts_once_however_many_programs_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of one scale are served by one engine, those of the other by another."""
    pytest.importorskip("openvino")

    class Hot(Affine):
        forward = inference(fallback="error")(Affine.forward)

    layer = Hot()
    eager = Affine.forward.__get__(layer)
    for engine, rows in (("onnxruntime", 2), ("openvino", 6000), ("onnxruntime", 7)):
        decided(monkeypatch, **{"eager": 9.0, "onnxruntime": 5.0, "openvino": 5.0, engine: 1.0})
        twice(layer, eager, X[:1].repeat(rows, 1))
    for _ in range(2):
        with torch.no_grad():
            layer.linear.weight.add_(0.1)
        for rows in (6000, 7):
            twice(layer, eager, X[:1].repeat(rows, 1))
    assert len({route.program.engine for route in routes(layer)}) == 2
    assert not any(route.live for route in routes(layer)), "two changes are not several"


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
        result, *_ = work()
        recorded.append(result.requires_grad)
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


def test_only_one_thread_measures_at_a_time(monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
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
    undecided(store)
    monkeypatch.setattr(_choice, "measure", measure)
    for _ in range(2):
        for layer in layers:
            twice(layer, Block.forward.__get__(layer), X)
    assert times == [1] and counts()["hits"] > 0

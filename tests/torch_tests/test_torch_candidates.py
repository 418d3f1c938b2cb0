"""Which engines may be chosen: those that build, run, agree with the eager method and keep NaNs where it does."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from router_support import Affine, X, decided, routes, spoil, undecided
from torch_support import Block, counts, same, twice

import hybrid_infer
from hybrid_infer import _choice, _family, _provisional, inference
from hybrid_infer._errors import EngineError
from hybrid_infer.checks import _agreement, _probes
from hybrid_infer.checks._verify import Inconclusive

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def automatic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")


@pytest.mark.parametrize(
    ("method", "serves"),
    [
        (lambda layer, x: layer.linear(x), "openvino"),
        (lambda layer, x: torch.nn.functional.gelu(layer.linear(x)), "openvino"),
        (lambda layer, x: (x @ x.T).softmax(-1) @ layer.linear(x), "openvino"),
        (lambda layer, x: torch.relu(layer.linear(x)), "onnxruntime"),
        (lambda layer, x: layer.linear(x).clamp(min=-1), "onnxruntime"),
        (lambda layer, x: layer.linear(x).softmax(-1), "onnxruntime"),
        # Arguments do not tell: what is NaN in one of them is NaN all the same.
        (lambda layer, x: x + torch.relu(layer.linear(x)), "onnxruntime"),
        (lambda layer, x: x + x.softmax(-1), "onnxruntime"),
    ],
    ids=["linear", "gelu", "attention", "relu", "clamp", "softmax", "relu beside", "softmax beside"],
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


def test_why_an_engine_was_left_out_is_kept_with_the_choice(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hybrid_infer")
    pytest.importorskip("openvino")
    monkeypatch.setattr(_probes, "difference", lambda *_: "a NaN is lost")
    decided(monkeypatch, eager=3.0, onnxruntime=2.0, openvino=1.0)

    def explained() -> dict[str, Any]:
        _family._FAMILIES.clear()  # as in another process

        class Hot(Affine):
            forward = inference()(Affine.forward)

        layer = Hot()
        with torch.no_grad():
            layer(X)
        (version,) = hybrid_infer.explain(layer).to_dict()["methods"][0]["versions"]
        return dict(version)

    first, second = explained(), explained()
    assert (first["origin"], second["origin"]) == ("captured", "disk")
    assert "openvino is not taken, though it is the fastest (NaNs are lost" in caplog.text
    for each in (first, second):
        assert each["served_by"] == ["onnxruntime"] and "a NaN is lost" in each["not_considered"]["openvino"], each


def test_choices_name_what_they_differ_in(monkeypatch: pytest.MonkeyPatch) -> None:
    decided(monkeypatch, eager=3.0, onnxruntime=2.0)
    made = [type("Hot", (Affine,), {"forward": inference(precision_mode=each)(Affine.forward)})() for each in
            ("float32", "bfloat16")]  # fmt: skip
    with torch.no_grad():
        for layer in made:
            layer(X)
    for layer in made:
        found = hybrid_infer.explain(layer)
        (version,) = found.to_dict()["methods"][0]["versions"]
        told = [each["differs_by"] for each in version["choices"]]
        assert told == [{"precision": "float32"}, {"precision": "bfloat16"}], str(found)
        assert "precision bfloat16, " in str(found)


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
    undecided(store)
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


def told_nothing(monkeypatch: pytest.MonkeyPatch, times: int, fault: Exception) -> list[int]:
    """What the first comparisons of OpenVINO end with; the list grows by one at each of them."""
    check, found = _agreement.check, []

    def checked(frontend: Any, route: Any, *args: Any) -> None:
        if route.program.engine == "openvino":
            found.append(1)
            if len(found) <= times:
                raise fault
        check(frontend, route, *args)

    monkeypatch.setattr(_agreement, "check", checked)
    return found


@pytest.mark.parametrize("fault", [Inconclusive("a near-tie"), EngineError("openvino", "out of memory")])
def test_an_engine_that_could_not_be_compared_is_measured_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    pytest.importorskip("openvino")

    class Hot(Affine):
        forward = inference(fallback="error")(Affine.forward)

    decided(monkeypatch, eager=3.0, onnxruntime=2.0, openvino=1.0)
    monkeypatch.setattr(_provisional, "_AGAIN", 0.2)
    found, layer = told_nothing(monkeypatch, 1, fault), Hot()
    with caplog.at_level(logging.INFO, "hybrid_infer"):
        twice(layer, lambda x: Affine.forward(layer, x), X)
    assert [route.program.engine for route in routes(layer)] == ["onnxruntime"]
    assert "(without openvino for now: measured again later)" in caplog.text
    time.sleep(0.3)
    again = Hot()
    twice(again, lambda x: Affine.forward(again, x), X)
    assert [route.program.engine for route in routes(again)] == ["openvino"] and len(found) == 2


def test_one_whose_comparisons_never_tell_anything_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino")

    class Hot(Affine):
        forward = inference(fallback="error")(Affine.forward)

    decided(monkeypatch, eager=3.0, onnxruntime=2.0, openvino=1.0)
    monkeypatch.setattr(_provisional, "_AGAIN", 0.0)
    found = told_nothing(monkeypatch, 1000, Inconclusive("a near-tie"))
    with torch.no_grad():
        for _ in range(20):
            another = Hot()
            another(X)
    assert [route.program.engine for route in routes(another)] == ["openvino"] and len(found) == 3

"""A graph whose sizes vary, that no engine serves: calls are served by graphs in which fewer of them do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_support import Block, counts, served, twice

from hybrid_infer import InputSpec, _compile, _family, inference
from hybrid_infer._errors import EngineError
from hybrid_infer.checks import _agreement
from hybrid_infer.checks._verify import Disagreement, Unseen

pytestmark = pytest.mark.torch

Dims = set[tuple[int, int]]


def _refused(monkeypatch: pytest.MonkeyPatch, refuses: Callable[[Dims], bool], fault: Exception | None = None) -> None:
    """No engine builds graphs of such open dimensions; or each one's results differ, with such a fault."""
    build, check = _compile.build_with, _agreement.check

    def building(request: Any, held: Any, *args: Any, **kwargs: Any) -> Any:
        if fault is None and refuses(set(held.version.open_dims)):
            raise EngineError("onnxruntime", "sizes vary")
        return build(request, held, *args, **kwargs)

    def checking(frontend: Any, route: Any, *args: Any) -> None:
        if fault is not None and refuses(set(route.held.version.open_dims)):
            raise fault
        check(frontend, route, *args)

    monkeypatch.setattr(_compile, "build_with", building)
    monkeypatch.setattr(_agreement, "check", checking)


def _layer(**options: Any) -> Any:
    class Hot(Block):
        @inference(fallback="error", **options)
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    return Hot()


def _calls(layer: Any, *shapes: tuple[int, ...]) -> None:
    for shape in shapes:
        twice(layer, Block.forward.__get__(layer), torch.rand(*shape, 4))


@pytest.mark.parametrize("fault", [None, Disagreement("it is wrong")], ids=["build", "results"])
def test_each_size_has_a_graph_where_none_serves_all(
    monkeypatch: pytest.MonkeyPatch, fault: Exception | None
) -> None:
    _refused(monkeypatch, bool, fault)
    layer = _layer()
    _calls(layer, (2,), (3,), (5,), (2,), (3,))
    assert counts()["captures"] == 4  # the one for all sizes among them, which is not tried again
    served(4, 3)


def test_other_processes_do_not_try_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _refused(monkeypatch, bool)
    _calls(_layer(), (2,), (3,))
    _family._FAMILIES.clear()  # as in another process
    before = counts()["captures"]
    _calls(_layer(), (3,), (2,), (5,))
    assert counts()["captures"] == before + 1


def test_what_was_served_before_goes_on_varying(monkeypatch: pytest.MonkeyPatch) -> None:
    _refused(monkeypatch, lambda dims: (0, 1) in dims)
    layer = _layer()
    _calls(layer, (2, 3), (4, 3), (4, 5), (6, 5), (7, 5), (7, 3))
    served(4, 3)  # (2, 3); (any, 3); (any, any), in vain; (any, 5)


def test_a_method_that_does_more_than_compute_is_not_captured_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    _refused(monkeypatch, bool, Unseen("it does more"))

    class Hot(Block):
        @inference()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    layer = Hot()
    _calls(layer, (2,), (3,), (5,))
    found = counts()
    (reason,) = found["fallbacks"]
    assert found["captures"] == 2 and "it does more" in reason, found


def test_dimensions_that_were_asked_for_are_told_to_be_in_vain(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _refused(monkeypatch, bool)

    class Hot(Block):
        forward = inference(input_spec=[InputSpec([None, 4], "float32", "x")])(Block.forward)

    layer = Hot()
    _calls(layer, (2,), (3,))
    assert counts()["hits"] == 2 and "not compiled ahead" in caplog.text
    captures = counts()["captures"]
    assert captures == 3
    _family._FAMILIES.clear()  # as in another process
    caplog.clear()
    _calls(Hot(), (2,), (3,))
    assert counts()["captures"] == captures and "not compiled ahead" in caplog.text

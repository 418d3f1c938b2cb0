"""Of a large program, what only says something while a method is traced counts for none of its answers."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support import counts, layer_class

from hybrid_infer import explain, inference
from hybrid_infer._version import Version
from hybrid_infer.fingerprint import _walk

LOG = logging.getLogger("what_ran_said")
FACTOR = 2.0


def _put(text: str) -> str:
    SAID.append(text)
    return text


SAID: list[str] = []


class Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return _put(super().format(record))


class Filter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return bool(_put(record.getMessage()))


class Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        thread = threading.Thread(target=_put, args=(self.format(record),))
        thread.start()
        thread.join()


class Tee:
    """A stream that keeps what is written to it, as training scripts put in the place of the standard output."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.keep(text)
        return int(self.stream.write(text))

    def keep(self, text: str) -> None:
        _put(text)

    def flush(self) -> None:
        self.stream.flush()


def _doubled(x: Any) -> Any:
    return x + x


def _shown(message: Any, *rest: Any, **more: Any) -> None:
    _put(str(message))


@pytest.fixture(params=["formatter", "filter", "handler"])
def handled(request: pytest.FixtureRequest) -> Iterator[None]:
    handler = Handler() if request.param == "handler" else logging.StreamHandler(sys.stderr)
    if request.param == "formatter":
        handler.setFormatter(Formatter())
    if request.param == "filter":
        handler.addFilter(Filter())
    LOG.addHandler(handler)
    yield
    LOG.removeHandler(handler)


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_walk, "MANY", 0)
    SAID.clear()


def _kept_by_what_ran(framework: Any, says: Callable[[], None]) -> None:
    class Method(layer_class(framework)):  # type: ignore[misc]
        @inference()
        def forward(self, x: Any) -> Any:
            says()
            return x * FACTOR

    layer = Method()
    layer.eval()
    with framework.no_grad():
        for _ in range(2):
            np.testing.assert_array_equal(layer(framework.ones([3])).numpy(), np.full(3, 2.0, "float32"))
    assert SAID and counts()["hits"] == 1 and not counts()["fallbacks"], counts()
    (entry,) = Method.forward.__hybrid_infer__.store().entries()
    assert Version.from_meta(entry.meta).ran is not None


@pytest.mark.usefixtures("handled")
def test_what_a_program_puts_between_its_log_and_the_reader_is_none_of_a_method(framework: Any) -> None:
    _kept_by_what_ran(framework, lambda: LOG.warning("computing"))


def test_a_stream_in_the_place_of_the_standard_output_is_none_of_a_method(
    framework: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Tee(sys.stdout))
    _kept_by_what_ran(framework, lambda: print("computing"))


@pytest.mark.filterwarnings("always:computing")
def test_what_shows_warnings_is_none_of_a_method(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "showwarning", _shown)
    _kept_by_what_ran(framework, lambda: warnings.warn("computing", stacklevel=1))


def test_explain_has_the_static_models_of_all_code_that_ran(framework: Any) -> None:
    class Method(layer_class(framework)):  # type: ignore[misc]
        @inference(backend="onnxruntime")
        def forward(self, x: Any, doubled: bool) -> Any:
            return _doubled(x) if doubled else x * FACTOR

    layer = Method()
    layer.eval()
    with framework.no_grad():
        for doubled in (True, False, True, False):
            layer(framework.ones([3]), doubled)
    assert counts()["captures"] == counts()["hits"] == 2
    (method,) = explain(layer).to_dict()["methods"]
    assert sorted(each["constants"]["doubled"] for each in method["versions"]) == ["False", "True"]

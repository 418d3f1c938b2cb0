"""Releases of the frameworks that capture nothing, and what a method says that was called with one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import hybrid_infer
from hybrid_infer import _installed
from hybrid_infer._errors import TraceError
from hybrid_infer.frontends import _releases

SETUP = Path(__file__).resolve().parents[2] / "setup.py"


@pytest.mark.parametrize("name", sorted(_releases.OLDEST.keys() - {"paddlepaddle-gpu"}))
def test_what_is_installed_is_at_least_what_can_be_captured(name: str) -> None:
    """setup.py asks for the build for CPUs."""
    found = re.search(rf'"{name}>=([\d.]+)', SETUP.read_text(encoding="utf-8"))
    assert found is not None and tuple(map(int, found[1].split("."))) == _releases.OLDEST[name]


@pytest.mark.parametrize("given", ["2.11.0", "2.11.0+cu130", "2.13.0a0+git12ab", "2.100", "3.0.0.dev20261101", "10.1"])
def test_later_releases_and_builds_of_them_are_taken(given: str) -> None:
    _releases.require({"torch": given}, "torch")


@pytest.mark.parametrize("given", ["2.10.1", "2.9.1+cu128", "1.13", "2.2.0a0"])
def test_older_ones_are_refused_with_a_remedy(given: str) -> None:
    with pytest.raises(TraceError, match=rf"torch {re.escape(given)} is older than 2\.11") as caught:
        _releases.require({"torch": given}, "torch")
    assert caught.value.remedy == "pip install --upgrade 'hybrid_infer[torch]'"


def test_a_build_from_source_has_no_number() -> None:
    _releases.require({"paddlepaddle": "0.0.0"}, "paddle")


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what an installed distribution says of itself; None: it is not installed."""
    told = _installed.version

    def set_to(name: str, number: str | None) -> None:
        monkeypatch.setattr(_installed, "version", lambda asked: (number or "") if asked == name else told(asked))
        if name == "torch":
            monkeypatch.setattr("torch.__version__", number)

    return set_to


def refusal() -> str:
    (found,) = hybrid_infer.stats().values()
    assert found["captures"] == found["hits"] == 0
    (reason,) = found["fallbacks"]
    return str(reason)


@pytest.mark.torch
@pytest.mark.parametrize(("name", "number", "reason"), [
    ("onnxscript", None, "the package onnxscript is not installed"),
    ("onnxscript", "0.5.7", "onnxscript 0.5.7 is older than 0.7, from which on"),
    ("torch", "2.10.0+cu128", "torch 2.10.0+cu128 is older than 2.11, from which on"),
])  # fmt: skip
def test_torch_of_an_older_release_or_without_its_exporter_runs_eagerly(
    release: Any, name: str, number: str | None, reason: str
) -> None:
    torch = pytest.importorskip("torch")
    release(name, number)
    layer = hybrid_infer.inference(torch.nn.Linear(4, 4).eval())
    x = torch.ones(2, 4)
    with torch.no_grad():
        assert torch.equal(layer(x), torch.nn.functional.linear(x, layer.weight, layer.bias))
    assert refusal().startswith(reason)


@pytest.mark.torch
def test_what_older_releases_of_torch_lack_is_no_defect(release: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two came with 2.7 or 2.8, the last with 2.9: without them, any call of a method raised."""
    torch = pytest.importorskip("torch")
    from hybrid_infer.frontends.torch import TorchFrontend

    monkeypatch.delattr(torch.nn.modules.module, "_has_any_global_hook")
    monkeypatch.delattr(torch._C._autograd, "_top_saved_tensors_default_hooks")
    monkeypatch.delattr(torch.fx._symbolic_trace, "is_fx_symbolic_tracing")
    monkeypatch.setattr(torch.fx._symbolic_trace, "is_fx_tracing", lambda: True, raising=False)
    frontend = TorchFrontend()
    assert not frontend.transparent() and not frontend.aside() and not frontend.packs() and frontend.tracing()
    release("torch", "2.6.0")
    hot = hybrid_infer.inference(lambda x: x * 2)
    x = torch.ones(2)
    assert torch.equal(hot(x), x * 2)
    monkeypatch.setattr(torch.fx._symbolic_trace, "is_fx_tracing", lambda: False)
    assert torch.equal(hot(x), x * 2)
    assert refusal().startswith("torch 2.6.0 is older than 2.11")


@pytest.mark.paddle
@pytest.mark.parametrize(("name", "number", "reason"), [
    ("paddle2onnx", None, "the package paddle2onnx is not installed"),
    ("paddlepaddle", "3.2.2", "paddlepaddle 3.2.2 is older than 3.3"),
])  # fmt: skip
def test_paddle_of_an_older_release_runs_eagerly(release: Any, name: str, number: str | None, reason: str) -> None:
    paddle = pytest.importorskip("paddle")
    release(name, number)
    layer = paddle.nn.Linear(4, 4)
    layer.eval()
    hot = hybrid_infer.inference(layer)
    x = paddle.ones([2, 4])
    with paddle.no_grad():
        assert bool((hot(x) == paddle.nn.functional.linear(x, layer.weight, layer.bias)).all())
    assert refusal().startswith(reason)

"""Attention layers in whose class the program has put a method that calls torch's own compute as they do eagerly."""

from __future__ import annotations

import functools
import gc
import threading
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import nn
from torch_support import same, served

from hybrid_infer import CaptureError, inference
from hybrid_infer._own_thread import redirected
from hybrid_infer.frontends import _torch_fastpath

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")]

PADDED = torch.zeros(3, 6, dtype=torch.bool)
PADDED[1, 4:] = True
KINDS = [nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)

    def forward(self, x: Any) -> Any:
        return self.encoder(x, src_key_padding_mask=PADDED)


def _served_alike(function: Any) -> None:
    model, x = Model().eval(), torch.randn(3, 6, 16)
    hot = inference(function, verify="off", fallback="error", backend="onnxruntime")
    with torch.no_grad():
        expected = function(model, x)
        assert not expected[1, 4:].any()  # which only the eager path leaves so
        same(hot(model, x), expected)
    served(captures=1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_method_of_the_program_in_the_class_calls_the_one_before(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original = kind.forward

    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, *args, **kwargs)

    monkeypatch.setattr(kind, "forward", patched)
    _served_alike(Model.forward)
    assert kind.forward is patched and original.__code__.co_filename.startswith(nn.__file__.removesuffix("__init__.py"))


def test_one_that_has_taken_over_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    original = nn.TransformerEncoder.forward
    patched = functools.wraps(original)(lambda *args, **kwargs: original(*args, **kwargs))
    monkeypatch.setattr(nn.TransformerEncoder, "forward", patched)
    _served_alike(Model.forward)


def test_the_method_itself_is_held_by_the_code() -> None:
    original = nn.TransformerEncoder.forward

    def through(model: Any, x: Any) -> Any:
        return original(model.encoder, x, src_key_padding_mask=PADDED)

    _served_alike(through)


def test_what_was_frozen_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = nn.TransformerEncoder.forward
    monkeypatch.setattr(nn.TransformerEncoder, "forward", lambda *args, **kwargs: original(*args, **kwargs))
    monkeypatch.setattr(_torch_fastpath, "_AT_FIRST", {})
    gc.collect()
    gc.freeze()
    _served_alike(Model.forward)


def test_what_was_frozen_before_and_is_not_found_leaves_the_method_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    out_of_sight = [[[nn.TransformerEncoder.forward]]]
    monkeypatch.setattr(
        nn.TransformerEncoder, "forward", lambda *args, **kwargs: out_of_sight[0][0][0](*args, **kwargs)
    )
    monkeypatch.setattr(_torch_fastpath, "_AT_FIRST", {})
    gc.collect()
    gc.freeze()
    with pytest.raises(CaptureError, match=r"TransformerEncoder\.forward is no more torch's"):
        _served_alike(Model.forward)


@pytest.mark.filterwarnings("ignore:Dynamo does not know")
def test_a_compiler_in_another_thread_reads_a_layer_while_it_is_captured() -> None:
    layer, x, found = nn.TransformerEncoderLayer(8, 2, 8, 0.0, batch_first=True), torch.rand(1, 3, 8), []

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) + 1

    def work() -> None:
        try:
            with torch.no_grad():
                found.append(torch.compile(Around(), backend="eager")(x))
        except Exception as error:
            found.append(error)

    def outer(method: Any, *args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs) * 2

    with torch.no_grad(), ExitStack() as stack:
        expected = layer(x)
        for _ in range(2):  # the second one around the first
            stack.enter_context(redirected(nn.TransformerEncoderLayer.forward, outer))
            stack.enter_context(redirected(nn.MultiheadAttention.forward, lambda method, *a, **k: method(*a, **k)))
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert torch.equal(layer(x), expected * 4)
    if isinstance(found[0], Exception):
        raise found[0]
    assert torch.equal(found[0], expected + 1)
    assert torch.equal(layer(x), expected)

"""Numbers that code takes out of tensors which weights and sizes decide, as paddings that a layer holds as buffers.

Where a trace fails without their values, those of the call are taken for granted, and each later call is checked.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_support import counts, same

from hybrid_infer import explain, inference

pytestmark = pytest.mark.torch


class Padded(torch.nn.Module):
    """A convolution with a padding on the right that fills up its last window, as EnCodec has them."""

    def __init__(self, kernel: int = 4, stride: int = 2) -> None:
        super().__init__()
        self.conv = torch.nn.Conv1d(3, 3, kernel, stride)
        self.register_buffer("kernel", torch.tensor(kernel), persistent=False)
        self.register_buffer("stride", torch.tensor(stride), persistent=False)

    def forward(self, x: Any) -> Any:
        size = x.shape[-1]
        frames = torch.ceil(size / self.stride).to(torch.int64)
        extra = frames * self.stride - size
        padded = torch.nn.functional.pad(x, (self.kernel - self.stride, extra))
        if padded.shape[-1] > 2 * size:  # the tracer would have to know
            padded = padded[..., : 2 * size]
        return self.conv(padded)


def _pairs(layer: Any, hot: Any, *sizes: int) -> None:
    with torch.no_grad():
        for size in sizes:
            x = torch.randn(2, 3, size)
            same(hot(x), Padded.forward(layer, x))


def test_sizes_with_the_same_padding_are_served_by_one_static_model() -> None:
    layer = Padded().eval()
    _pairs(layer, inference(layer), 8, 12, 16, 20, 24)
    assert (counts()["captures"], counts()["hits"]) == (2, 3), counts()


def test_explain_tells_numbers_and_where_they_are_taken() -> None:
    layer = Padded().eval()
    _pairs(layer, inference(layer), 8)
    found = explain(layer)
    (version,) = found.to_dict()["methods"][0]["versions"]
    line = f"test_torch_held_numbers.py:{Padded.forward.__code__.co_firstlineno + 4}"
    assert version["branches"] == [] and {each.partition(f"{line}: ")[2] for each in version["numbers"]} == {"0", "2"}
    assert "number" in str(found) and "==" not in str(found)


def test_another_padding_is_right() -> None:
    layer = Padded().eval()
    _pairs(layer, inference(layer), 8, 12, 9, 16, 11, 13)
    assert counts()["eager_calls"], "a check that lets all pass is none"


def test_a_buffer_that_changes_is_seen() -> None:
    layer = Padded().eval()
    hot = inference(layer)
    _pairs(layer, hot, 8, 8)
    layer.kernel += 1
    _pairs(layer, hot, 8)
    layer.kernel.data -= 1
    _pairs(layer, hot, 8)
    layer.kernel = torch.tensor(6)
    _pairs(layer, hot, 8)


def test_each_instance_goes_by_its_own() -> None:
    hot = inference(Padded.forward)
    for kernel, stride in ((4, 2), (4, 3)):
        layer = Padded(kernel, stride).eval()
        with torch.no_grad():
            for size in (8, 8, 9):
                x = torch.randn(2, 3, size)
                same(hot(layer, x), Padded.forward(layer, x))


def test_weights_that_live_are_asked_at_each_call() -> None:
    layer = Padded().eval()
    hot = inference(layer, weights="live")
    _pairs(layer, hot, 8, 8)
    layer.kernel += 1
    _pairs(layer, hot, 8, 8)


def test_what_values_of_the_call_decide_is_not_taken_for_granted() -> None:
    def by_values(x: Any) -> Any:
        padded = torch.nn.functional.pad(x, (0, (x > 0).sum()))
        return padded * 2 if padded.shape[-1] > 3 else padded

    hot = inference(by_values)
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(2, 3)
            same(hot(x), by_values(x))
    assert not counts()["captures"], counts()

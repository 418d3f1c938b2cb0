"""``isinstance(n, int)`` of sizes and integers that vary: they are numbers to the program, as eagerly."""

from __future__ import annotations

import numbers
import threading
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch_support import served, twice

from hybrid_infer import inference
from hybrid_infer.frontends import _torch_kinds


def _last(x: torch.Tensor, keep: Any) -> torch.Tensor:
    """As transformers' `logits_to_keep`."""
    at = slice(-keep, None) if isinstance(keep, int) else keep
    return x[:, at] * 2


def _of_a_size(x: torch.Tensor, keep: Any) -> torch.Tensor:
    return x * (2 if isinstance(x.shape[1], int) else 3) + (keep if isinstance(keep, numbers.Integral) else 0)


@pytest.mark.parametrize("function", [_last, _of_a_size])
def test_what_varies_is_an_integer_still(function: Any) -> None:
    hot = inference(backend="onnxruntime", verify="off")(function)
    for rows, keep in ((5, 2), (6, 3), (7, 4), (9, 6)):
        twice(hot, function, torch.rand(1, rows, 2), keep)
    served(captures=2)


def _to_tens(x: torch.Tensor) -> torch.Tensor:
    return x * round(x.shape[0], -1) + round(x.shape[0], 2)


def test_a_size_that_is_rounded_to_tens_is_so() -> None:
    hot = inference(backend="onnxruntime", verify="off")(_to_tens)
    for rows in (8, 15, 23):
        twice(hot, _to_tens, torch.rand(rows))


def test_to_the_tracer_and_to_other_threads_it_is_what_it_was() -> None:
    rows = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.rand(7, 3), static_shapes=False).shape[0]
    found: list[bool] = []
    with _torch_kinds.as_eagerly():
        thread = threading.Thread(target=lambda: found.append(isinstance(rows, int)))
        thread.start()
        thread.join()
        assert isinstance(rows, int) and isinstance(rows, torch.SymInt) and isinstance(rows > 2, bool)
        assert not eval("isinstance(rows, int)", {"rows": rows, "__name__": "torch.export"})
    assert found == [False] and not isinstance(rows, int) and "__getattribute__" not in vars(torch.SymInt)

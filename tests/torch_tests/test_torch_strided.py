"""``as_strided`` means places in memory, also where a tensor's elements lie there in another order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch_support import counts, same

from hybrid_infer import inference

pytestmark = pytest.mark.torch

_Method = Callable[[torch.Tensor], torch.Tensor]


def _windows(x: torch.Tensor) -> torch.Tensor:
    """Of each head, windows of 4 rows, each 2 behind the one before, as in a Longformer's attention."""
    rows, batch, width = x.shape
    heads = (x * 2).view(rows, batch, 4, width // 4).transpose(0, 1).transpose(1, 2).reshape(batch * 4, rows, -1)
    count, step, row, one = heads.shape[0], heads.stride(0), heads.stride(1), heads.stride(2)
    return heads.as_strided((count, rows // 2 - 1, 4, width // 4), (step, 2 * row, row, one)).sum(-1)


METHODS: dict[str, _Method] = {
    "windows of heads": _windows,
    "transposed": lambda x: (x * 2).transpose(0, 2).as_strided((3, 4), (8, 1)) + 0,
    "as it lies": lambda x: (x * 2).movedim(0, 1).as_strided(x.shape, x.stride()) + 0,
    "behind its start": lambda x: (x * 2).mT.as_strided((2, 3), (2, 1), 5) + 0,
    "a part": lambda x: (x * 2)[2:].as_strided((3, 2), (3, 2)) + 0,
    "a part by the whole's start": lambda x: (x * 2)[2:].as_strided((3, 2), (3, 2), x.stride(0) * 3) + 0,
    "repeated": lambda x: (x[:1] * 2).expand(5, -1, -1).as_strided((2, 3), (3, 2)) + 0,
    "copied": lambda x: torch.as_strided_copy((x * 2).mT, (2, 3), (2, 1), 5) + 0,
    "contiguous": lambda x: (x * 2).as_strided((2, 3, 4), (3, 2, 1)) + 0,
}


@pytest.mark.parametrize("name", METHODS)
def test_elements_are_those_of_eager(name: str) -> None:
    method = METHODS[name]
    hot = inference(method, backend="onnxruntime", verify="off", fallback="error")
    with torch.no_grad():
        for sizes in ((8, 3, 16), (12, 3, 16), (20, 3, 16)):
            x = torch.randn(sizes)
            for _ in range(2):
                same(hot(x), method(x))
    assert counts()["eager_calls"] == 0
    assert counts()["captures"] <= 3


UNKNOWN: dict[str, tuple[_Method, str]] = {
    "gaps": (lambda x: (x * 2)[:, 0].as_strided((2, 3), (1, 2)) + 0, "between whose elements others lie"),
    "what is behind": (lambda x: (x * 2)[:1].as_strided((x.shape[1], 20), (16, 1)) + 0, "before or behind its tensor"),
    "what is before": (lambda x: (x * 2)[2:].as_strided((2, 3), (1, 2), 0) + 0, "before or behind its tensor"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_no_part_of_the_tensor_is_read_eagerly(name: str, caplog: pytest.LogCaptureFixture) -> None:
    method, reason = UNKNOWN[name]
    hot = inference(method, backend="onnxruntime", verify="off")
    with torch.no_grad():
        for rows in (4, 4, 6):
            x = torch.randn(rows, 2, 16)
            same(hot(x), method(x))
    assert reason in caplog.text
    assert counts()["eager_calls"] == 3


def test_a_write_by_places_in_memory_is_made() -> None:
    def method(x: torch.Tensor) -> torch.Tensor:
        y = x.mT * 2
        y.as_strided((2, 2), (3, 1)).zero_()
        return y

    hot = inference(method, backend="onnxruntime", verify="off")
    x = torch.randn(4, 6)
    with torch.no_grad():
        for _ in range(2):
            same(hot(x), method(x))


def test_an_argument_of_other_strides() -> None:
    def method(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((3, 2), (1, 2)) * 2

    hot = inference(method, backend="onnxruntime", verify="off")
    plain = torch.randn(4, 4)
    for x in (plain, plain.t(), plain):
        with torch.no_grad():
            same(hot(x), method(x))

"""Shifts of bits: each type, by numbers and by tensors, by more bits than there are and by less than none."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch_support import counts, twice

from hybrid_infer import inference

pytestmark = pytest.mark.torch

_TYPES = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
_OPERATORS = [operator.lshift, operator.rshift, torch.bitwise_left_shift, torch.bitwise_right_shift]


def _numbers(dtype: torch.dtype) -> torch.Tensor:
    info = torch.iinfo(dtype)
    few = [info.min, info.max, 0, 1, 5, 100, 77, info.min // 2, info.max // 3]
    return torch.tensor([n if info.min <= n <= info.max else 3 for n in [*few, -1, -5, -100]], dtype=dtype)


@pytest.mark.parametrize("shift", _OPERATORS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("dtype", _TYPES, ids=lambda each: str(each).removeprefix("torch."))
def test_by_tensors(dtype: torch.dtype, shift: Any) -> None:
    def method(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        return shift(x[:, None], by)

    hot, bits = inference(method, backend="onnxruntime", fallback="error"), torch.iinfo(dtype).bits
    by = torch.tensor([0, 1, 2, 7, bits - 1, bits, bits + 1, *([] if dtype is torch.uint8 else [-1, -9])], dtype=dtype)
    for count in (12, 5, 7):
        twice(hot, method, _numbers(dtype)[:count], by)
    assert counts()["captures"] == 2


@pytest.mark.parametrize("shift", [operator.lshift, operator.rshift], ids=lambda each: each.__name__)
@pytest.mark.parametrize("second", _TYPES, ids=lambda each: str(each).removeprefix("torch."))
@pytest.mark.parametrize("first", _TYPES, ids=lambda each: str(each).removeprefix("torch."))
def test_of_two_types(first: torch.dtype, second: torch.dtype, shift: Any) -> None:
    """The result is of the type that has place for both, unless one is a single number."""

    def method(x: torch.Tensor, by: torch.Tensor, one: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide, narrow = shift(x[:, None], by), shift(x, one)
        return wide, wide.to(torch.float64) * 2, narrow, narrow.to(torch.float64), shift(one, x[-1])

    hot = inference(method, backend="onnxruntime", fallback="error")
    by, one = torch.tensor([0, 1, 3, 9, 20, 40], dtype=second), torch.tensor(9, dtype=second)
    for numbers in (torch.tensor([1, 2, 3], dtype=first), _numbers(first), _numbers(first)[:7]):
        twice(hot, method, numbers, by, one)


@pytest.mark.parametrize("by", [0, 1, 4, 7, 8, 31, 63, 64, 100])
@pytest.mark.parametrize("dtype", _TYPES, ids=lambda each: str(each).removeprefix("torch."))
def test_by_numbers(dtype: torch.dtype, by: int) -> None:
    def method(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x << by, x >> by

    twice(inference(method, backend="onnxruntime", fallback="error"), method, _numbers(dtype))


@pytest.mark.parametrize("backend", ["onnxruntime", "native"])
def test_weights_of_4_bits_are_unpacked(backend: str) -> None:
    class Packed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("packed", torch.randint(-(2**31), 2**31 - 1, (4, 6), dtype=torch.int32))
            self.register_buffer("shifts", torch.arange(0, 32, 4, dtype=torch.int32))
            self.register_buffer("scales", torch.rand(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = torch.bitwise_right_shift(self.packed[:, None, :], self.shifts[None, :, None]) & 15
            return x @ ((weight.reshape(-1, 6) - 8) * self.scales)

    layer = Packed()
    hot = inference(layer.forward, backend=backend, fallback="error")
    for rows in (2, 3):
        twice(hot, layer.forward.__func__.__get__(layer), torch.rand(rows, 32))

"""The check of weights at each call: the writes that it sees, and what it takes for no change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hybrid_infer.frontends import _torch_forms  # noqa: E402
from hybrid_infer.frontends.torch import FRONTEND  # noqa: E402

pytestmark = pytest.mark.torch

DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip
SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (3,), (100,), (4, 4), (1, 5), (0, 3), (3, 40))


def _watch(*tensors: Any) -> Callable[[], bool]:
    box = dict(enumerate(tensors))
    return FRONTEND.watch([(box, i, tensor) for i, tensor in box.items()])


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_written_behind_the_framework_are_seen_in_all_types(dtype: str) -> None:
    for shape in SHAPES:
        for layout in (lambda t: t, lambda t: t.transpose(0, -1) if t.ndim else t, lambda t: t.expand(2, *t.shape)):
            weight = layout(torch.ones(shape).to(getattr(torch, dtype)))
            check = _watch(torch.ones(2), weight)
            assert check() and check()
            if weight.numel():
                memory = weight.view(torch.int16) if dtype == "bfloat16" else weight
                memory.detach().numpy()[...] = 0  # no version of torch's counts it
                assert not check(), (shape, weight.stride())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0])
def test_numbers_are_compared_by_their_bits(value: float) -> None:
    weight = torch.full((3, 3), value)
    check = _watch(weight, torch.full((2, 2), value).t()[:, :1])
    assert check() and check()
    weight.numpy()[...] = 0.0
    assert not check()


RELAID = {
    "transposed": lambda data: data.t(),
    "shorter": lambda data: data[:2],
    "one row for all": lambda data: data[:1].expand(4, 4),
    "flat": lambda data: data.reshape(16),
    "contiguous again": lambda data: data.t().contiguous(),
}


@pytest.mark.parametrize("name", RELAID)
@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("one_step", [True, False])
def test_the_same_memory_read_in_another_way_is_seen(
    name: str, values: bool, one_step: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not one_step:  # a release of torch whose guards are other ones
        monkeypatch.setattr(_torch_forms, "_maker", lambda: None)
    weight = torch.nn.Parameter(torch.ones(4, 4))
    check = FRONTEND.watch([({"weight": weight}, "weight", weight)], values=values)
    assert check()
    weight.data = RELAID[name](weight.data)
    assert not check()


TYPED = {
    "another type": (torch.float16, lambda data: data.view(torch.bfloat16)),
    "conjugate": (torch.complex64, lambda data: data.conj()),
    "negative": (torch.float32, torch._neg_view),
}


@pytest.mark.parametrize("name", TYPED)
@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("one_step", [True, False])
def test_the_same_memory_as_other_numbers_is_seen(
    name: str, values: bool, one_step: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not one_step:
        monkeypatch.setattr(_torch_forms, "_maker", lambda: None)
    dtype, other = TYPED[name]
    weight = torch.ones(4, 4).to(dtype)
    check, stamp = FRONTEND.watch([({"weight": weight}, "weight", weight)], values=values), FRONTEND.stamp(weight)
    assert check()
    weight.data = other(weight.data)
    assert not check() and FRONTEND.stamp(weight) != stamp


class _Asked(torch.overrides.TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(function.__name__)
        return function(*args, **(kwargs or {}))


def _asked(check: Callable[[], bool]) -> list[str]:
    """What a check asks of tensors one by one."""
    with (mode := _Asked()):
        assert check()
    return mode.names


def test_calls_in_modes_that_take_turns_are_compared_in_one_step() -> None:
    kept = _torch_forms.kept([torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(3))])
    for _ in range(20):
        for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
            with mode():
                assert kept()
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            assert not _asked(kept)


def test_a_weight_that_two_layers_share_is_no_change_in_one_step() -> None:
    weights = [torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(3))]
    kept = _torch_forms.kept([*weights, weights[0]])
    assert not _asked(kept)
    weights[0].data = weights[0].data.t()[:1]
    assert not kept()


def test_a_transposed_weight_that_is_laid_out_anew_is_seen() -> None:
    weight = torch.nn.Parameter(torch.ones(4, 4).t())
    kept = weight.data
    check = _watch(weight)
    assert check()
    weight.data = kept.as_strided((4, 4), (4, 1))
    assert weight.is_contiguous() and not check()


@pytest.mark.parametrize("values", [True, False])
def test_modes_of_the_thread_and_asking_for_gradients_are_no_change(values: bool) -> None:
    weight = torch.nn.Parameter(torch.ones(4, 4))
    check = FRONTEND.watch([({"weight": weight}, "weight", weight)], values=values)
    for _ in range(12):
        for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
            with mode():
                assert check()
        weight.requires_grad_(not weight.requires_grad)
        assert check()
    weight.data = weight.data.t()
    assert not check()


def test_forms_are_compared_in_one_step_where_torch_has_it() -> None:
    assert _torch_forms._maker() is not None, "the guards of this release are others: each weight is asked by itself"

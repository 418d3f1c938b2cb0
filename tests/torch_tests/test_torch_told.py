"""What is said of methods that run eagerly names what it is about, in words of the program."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch_support import Block, counts, eagerly

from hybrid_infer import inference
from hybrid_infer.frontends import _places, _torch_reasons

X = torch.linspace(-1, 1, 24).reshape(2, 3, 4)


def ask(function: Any, *args: Any) -> None:
    with torch.no_grad():
        for _ in range(2):
            function(*args)


def test_a_view_that_is_assigned_is_named() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        @inference()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.last = x[:, -1:]
            return self.linear(x - self.last) + self.last  # type: ignore[no-any-return]

    ask(Net().eval(), X)
    eagerly("what it assigns to self.last is a view of an argument or a weight", captures=counts()["captures"])


def test_a_tensor_of_another_kind_is_told_by_what_it_is() -> None:
    @inference()
    def product(adjacent: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return adjacent @ x

    ask(product, torch.eye(4).to_sparse(), X[0].T)
    eagerly("argument `adjacent` is a tensor of layout torch.sparse_coo, which a static graph can neither take")


def test_an_operator_that_the_tracer_has_no_form_of_is_told_as_such() -> None:
    """Its name, as the tracer writes it, was the whole of the reason."""

    @inference()
    def loss(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.ctc_loss(scores.log_softmax(2), target, (3, 3), (2, 1))

    ask(loss, torch.linspace(-1, 1, 24).reshape(3, 2, 4), torch.tensor([[1, 2], [3, 0]]))
    eagerly("torch's tracer has no form of its operator ctc_loss (")


@pytest.mark.parametrize("kind", ["nested tensor", "tensor without values (its device is meta)"])
def test_a_tensor_without_sizes_or_values_is_told_by_what_it_is(kind: str) -> None:
    @inference()
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, that nested tensors are a prototype
        ask(doubled, torch.nested.nested_tensor([X[0], X[0, :2]]) if "nested" in kind else X.to("meta"))
    eagerly(f"argument `x` is a {kind}, which a static graph can neither take nor return")


def test_derivatives_under_vmap() -> None:
    block = Block()

    @inference()
    def jacobians(x: torch.Tensor) -> Any:
        return torch.vmap(torch.func.jacrev(block))(x)

    ask(jacobians, X[0])
    eagerly("a transform of torch.func, which the tracer does not follow")


def test_no_reason_has_an_address() -> None:
    fault = ValueError("No form of <HOP object at 0x7fc4632ecf50> and <x at 0x1F>.")
    assert _torch_reasons.first_line(fault) == "No form of <HOP> and <x>."


def reason(function: Any) -> str:
    try:
        function()
    except Exception as fault:
        return _torch_reasons.explained(fault)[0].partition(" (/")[0]
    raise AssertionError("it raises nothing")


def test_a_bare_error_of_the_tracer_is_told_as_one() -> None:
    def fails() -> None:
        raise AssertionError

    assert reason(lambda: torch.nn.ModuleList()[5]).startswith("PyTorch's own tracer fails (IndexError: index 5")
    assert reason(lambda: [][5]) == "list index out of range"
    assert reason(fails) == "it raises AssertionError while it is traced"


def test_no_line_of_pythons_own_contexts_is_the_place() -> None:
    @contextlib.contextmanager
    def around() -> Iterator[None]:
        yield

    def inside() -> None:
        with around():
            raise KeyError("inside")

    try:
        contextlib.contextmanager(lambda: iter([1]))().__enter__()
        inside()
    except Exception as fault:
        assert "contextlib" not in _places.of_error(fault, torch)

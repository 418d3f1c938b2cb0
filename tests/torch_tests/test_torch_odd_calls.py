"""Calls that a signature does not tell everything about, and methods whose runs are seen from outside."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_support import Block, counts, same

from hybrid_infer import inference, stats

pytestmark = pytest.mark.torch

X = torch.linspace(-1, 1, 8).reshape(2, 4)


@pytest.mark.parametrize("wrap", [lambda n: {"steps": n}, lambda n: [n]], ids=["dict", "list"])
def test_an_integer_that_varies_inside_a_container(wrap: Any) -> None:
    @inference(fallback="error")
    def scaled(x: torch.Tensor, given: Any) -> torch.Tensor:
        return x * (given["steps"] if isinstance(given, dict) else given[0])

    for n in (2, 3, 4, 5, 7):
        same(scaled(X, wrap(n)), X * n)
    assert counts()["captures"] == 2


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_sparse_tensor_where_a_dense_one_was(caplog: pytest.LogCaptureFixture) -> None:
    @inference()
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    same(doubled(X), X * 2)
    for sparse in (X.to_sparse(), X.to_sparse_csr()):
        assert torch.equal(doubled(sparse).to_dense(), X * 2)
    same(doubled(X), X * 2)
    assert counts()["eager_calls"] == 2 and "Sparse" in caplog.text


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor() -> None:
    @inference()
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    same(doubled(X), X * 2)
    nested = torch.nested.nested_tensor([X, X[:1]])
    assert torch.equal(doubled(nested).to_padded_tensor(0.0), (nested * 2).to_padded_tensor(0.0))


POOL = ThreadPoolExecutor(1)


def test_threads_of_the_programs_own() -> None:
    """Theirs is a set, whose elements lead to all of torch."""

    @inference()
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * POOL.submit(lambda: 2.0).result()

    POOL.submit(float).result()
    for _ in range(2):
        same(scaled(X), X * 2)
    assert not counts()["fallbacks"], counts()


def test_a_file_is_not_written_by_the_trace_as_well(tmp_path: Path) -> None:
    path = tmp_path / "calls"

    class Recorder(Block):
        @inference()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with open(path, "a") as file:
                file.write("call\n")
            return super().forward(x)

    layer = Recorder()
    for n in (1, 2, 3):
        layer(X)
        assert path.read_text().count("call") == n
    (reason,) = counts()["fallbacks"]
    assert "it opens the file" in reason


class Scripted(Block):
    """One of its sublayers keeps its weights outside of Python, and whatever else there is."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = torch.jit.script(inner)

    @inference()
    def through(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * 2

    @inference(fallback="error")
    def beside(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("parts", [(torch.nn.Linear(4, 4), torch.nn.ReLU()), (torch.nn.ReLU(),), ()], ids=len)
def test_a_sublayer_that_torchscript_has_compiled(parts: tuple[torch.nn.Module, ...]) -> None:
    layer = Scripted(torch.nn.Sequential(*parts) if parts else torch.nn.ReLU()).eval()
    with torch.no_grad():
        for _ in range(2):
            same(layer.through(X), layer.inner(X) * 2)
            same(layer.beside(X), layer.linear(X))
    found = {name.rpartition(".")[2]: each for name, each in stats().items()}
    assert found["through"]["eager_calls"] == 2 and found["beside"]["hits"] >= 1 and not found["beside"]["eager_calls"]

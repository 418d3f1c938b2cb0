"""Sparse and quantised tensors that a layer holds, and that a method does not use: openai-whisper's is one of those."""

from __future__ import annotations

from typing import Any

import pytest
from support import counts

from hybrid_infer import inference

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*(Sparse|quantize_per).*:UserWarning")]

MAKERS = {
    "coo": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "mkldnn": lambda: torch.eye(3).to_mkldnn(),
    "quantised": lambda: torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.qint8),
    "none": lambda: None,
}


class Net(torch.nn.Module):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("held", held, persistent=False)
        self.register_buffer("steps", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        return self.linear(x)

    def counting(self, x: Any) -> Any:
        self.steps.add_(1)
        return self.linear(x) + self.steps

    def using(self, x: Any) -> Any:
        dense = self.held if self.held.layout is torch.strided else self.held.to_dense()
        return x + dense.sum()

    def writing(self, x: Any) -> Any:
        self.held.mul_(2)
        return x + 1


def _pair(kind: str) -> tuple[Net, Net]:
    nets = []
    for _ in range(2):
        torch.manual_seed(0)
        nets.append(Net(MAKERS[kind]()).eval())
    return nets[0], nets[1]


@pytest.mark.parametrize("kind", list(MAKERS))
@pytest.mark.parametrize("method", ["forward", "counting"])
def test_a_method_is_served_beside_it(kind: str, method: str) -> None:
    eager, net = _pair(kind)
    setattr(net, method, inference(getattr(net, method)))
    with torch.no_grad():
        for rows in (2, 2, 3, 3, 5):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(getattr(net, method)(x), getattr(eager, method)(x))
    assert counts()["captures"] == 2 and not counts()["eager_calls"]
    torch.testing.assert_close(net.steps, eager.steps)


def test_another_one_in_its_place_changes_nothing() -> None:
    eager, net = _pair("coo")
    net.forward = inference(net.forward)
    x = torch.randn(2, 4)
    with torch.no_grad():
        net(x)
        net.held = torch.zeros(3, 3).to_sparse()
        torch.testing.assert_close(net(x), eager(x))
        net.held = torch.zeros(3, 3)
        torch.testing.assert_close(net(x), eager(x))


@pytest.mark.parametrize("kind", ["coo", "csr", "mkldnn", "quantised"])
def test_a_method_that_uses_it_runs_eagerly(kind: str) -> None:
    eager, net = _pair(kind)
    if kind == "quantised":
        for each in (eager, net):
            each.using = lambda x, each=each: x + each.held.dequantize().sum()
    net.using = inference(net.using)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(net.using(torch.ones(2, 4)), eager.using(torch.ones(2, 4)))
    assert counts()["eager_calls"] == 2


def test_a_method_that_writes_to_it_runs_eagerly() -> None:
    eager, net = _pair("coo")
    net.writing = inference(net.writing)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(net.writing(torch.ones(2, 4)), eager.writing(torch.ones(2, 4)))
            torch.testing.assert_close(net.held.to_dense(), eager.held.to_dense())
    assert counts()["eager_calls"] == 3


def test_a_dense_one_of_the_same_size_is_told_from_it() -> None:
    """Of a sparse one it is noted, on disk too, that the method cannot be served."""
    x = torch.ones(2, 4)
    for held in (torch.eye(3).to_sparse(), torch.eye(3), torch.eye(3).to_sparse()):
        net = Net(held).eval()
        net.using = inference(net.using)
        with torch.no_grad():
            for _ in range(2):
                torch.testing.assert_close(net.using(x), x + 3)
    assert (counts()["captures"], counts()["eager_calls"]) == (1, 4)


GRAPH: Any = None


def _times_global(x: Any) -> Any:
    return torch.sparse.mm(GRAPH, x) if x.shape[0] == 3 else x * GRAPH._nnz()


def test_one_that_code_names_is_told_by_its_values() -> None:
    """How many it holds is a number to a tracer, which a graph keeps."""
    global GRAPH
    method = inference(_times_global)
    with torch.no_grad():
        for count in (3, 2, 3):
            GRAPH = torch.diag(torch.tensor([1.0, 1.0, float(count == 3)])).to_sparse()
            for _ in range(2):
                torch.testing.assert_close(method(torch.ones(2, 4)), torch.full((2, 4), float(count)))
            torch.testing.assert_close(method(torch.eye(3)), GRAPH.to_dense())


def test_one_that_a_layer_holds_is_told_by_its_values() -> None:
    class Degree(torch.nn.Module):
        def __init__(self, count: int) -> None:
            super().__init__()
            self.register_buffer("graph", torch.eye(count, 5).to_sparse_coo())

        @inference()
        def forward(self, x: Any) -> Any:
            return x * self.graph._nnz()

    with torch.no_grad():
        for count in (2, 3):
            net = Degree(3)
            net.graph = torch.diag(torch.tensor([1.0, 1.0, float(count == 3)])).to_sparse()
            for _ in range(2):
                torch.testing.assert_close(net(torch.ones(2)), torch.full((2,), float(count)))

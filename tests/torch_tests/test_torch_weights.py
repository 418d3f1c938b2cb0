"""A changed weight is used by the very next call, without a new capture, however it was changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_support import Block, counts, same, served, twice

from hybrid_infer import _compile, inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Rich(torch.nn.Module):
    """Weights in every place where a layer can keep them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("offset", torch.arange(4.0))
        self.plain = torch.ones(4)
        self.listed = [torch.full((4,), 2.0), {"deep": torch.full((4,), 3.0)}]
        self.paired = (torch.full((4,), 4.0), "name")

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) + self.offset * self.plain
        return y * self.listed[0] - self.listed[1]["deep"] / self.paired[0]  # type: ignore[index,operator]


def rich(**options: Any) -> Rich:
    """A layer with a decorated forward that no other test has called."""

    class Hot(Rich):
        forward = inference(fallback="error", **options)(Rich.compute)

    return Hot()


def _in_place(layer: Rich) -> None:
    with torch.no_grad():
        layer.linear.weight.mul_(2)


def _load(layer: Rich) -> None:
    layer.load_state_dict({k: v + 1 for k, v in layer.state_dict().items()})


def _replace(layer: Rich) -> None:
    layer.linear.bias = torch.nn.Parameter(torch.full((4,), 9.0))


def _optimise(layer: Rich) -> None:
    layer.compute(X).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()


def _merge(layer: Rich) -> None:
    layer.linear.weight.data += torch.full((4, 4), 0.25)


def _assign_data(layer: Rich) -> None:
    layer.linear.weight.data = torch.full((4, 4), 0.5)


def _buffer(layer: Rich) -> None:
    layer.offset.add_(1)  # type: ignore[operator]


def _new_buffer(layer: Rich) -> None:
    layer.offset = torch.full((4,), 5.0)


def _plain(layer: Rich) -> None:
    layer.plain = torch.full((4,), 6.0)


def _list_element(layer: Rich) -> None:
    layer.listed[0] = torch.full((4,), 7.0)


def _dict_element(layer: Rich) -> None:
    layer.listed[1]["deep"].fill_(8.0)  # type: ignore[index]


def _tuple(layer: Rich) -> None:
    layer.paired = (torch.full((4,), 10.0), "name")


def _whole_sublayer(layer: Rich) -> None:
    layer.linear = torch.nn.Linear(4, 4)


CHANGES = [
    _in_place, _load, _replace, _optimise, _merge, _assign_data, _buffer, _new_buffer, _plain, _list_element,
    _dict_element, _tuple, _whole_sublayer,
]  # fmt: skip


@pytest.mark.parametrize("weights", ["bound", "live"])
def test_every_way_to_change_a_weight(weights: str) -> None:
    layer = rich(weights=weights)
    twice(layer, layer.compute, X)
    changes: list[Callable[[Any], None]] = CHANGES
    for change in changes:
        with torch.no_grad():
            before = layer.compute(X)
        change(layer)
        with torch.no_grad():
            expected = layer.compute(X)
            assert not torch.allclose(before, expected), change
            same(layer(X), expected)
            same(layer(X), expected)
    served(captures=1)
    if weights == "live":
        assert counts()["builds"] == 1


def test_weights_that_keep_changing_are_fed_live() -> None:
    layer = rich()
    for n in range(8):
        with torch.no_grad():
            layer.linear.weight.fill_(n)
        twice(layer, layer.compute, X)
    served(captures=1)
    assert counts()["bindings"] <= 5


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_another_element_type_is_another_version(dtype: torch.dtype) -> None:
    class Layer(Block):
        forward = inference(fallback="error")(Block.forward)

    layer = Layer()
    twice(layer, Block.forward.__get__(layer), X)
    layer.to(dtype)
    with torch.no_grad():
        same(layer(X.to(dtype)), Block.forward(layer, X.to(dtype)), 3e-2 if dtype is torch.bfloat16 else 1e-6)
    layer.to(torch.float32)
    twice(layer, Block.forward.__get__(layer), X)
    served(captures=2)


class Two(torch.nn.Module):
    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        if tied:
            self.two.weight = self.one.weight

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.relu(self.one(x)))

    forward = inference(fallback="error")(compute)


def test_tied_and_untied_instances_are_told_apart() -> None:
    tied, untied = Two(True), Two(False)
    twice(tied, tied.compute, X)
    twice(untied, untied.compute, X)
    served(captures=2)
    untied.two.weight = untied.one.weight
    twice(untied, untied.compute, X)
    with torch.no_grad():
        untied.one.weight.add_(1)
    twice(untied, untied.compute, X)
    tied.two.weight = torch.nn.Parameter(torch.zeros(4, 4))
    twice(tied, tied.compute, X)
    served(captures=2)


def test_instances_share_one_model_and_keep_their_weights() -> None:
    class Layer(Block):
        forward = inference(fallback="error")(Block.forward)

    layers = [Layer() for _ in range(12)]
    for _ in range(2):
        for layer in layers:
            twice(layer, Block.forward.__get__(layer), X)
    served(captures=1, bindings=12)


def test_bert_blocks_are_captured_once(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bert = pytest.importorskip("transformers.models.bert.modeling_bert")
    from transformers import BertConfig

    config = BertConfig(
        hidden_size=8, num_attention_heads=2, intermediate_size=16, num_hidden_layers=12, vocab_size=32,
        max_position_embeddings=16,
    )  # fmt: skip
    model = bert.BertModel(config).eval()
    ids = torch.arange(6).reshape(1, 6)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    with torch.no_grad():
        expected = model(ids, attention_mask=mask)
        monkeypatch.setattr(bert.BertLayer, "forward", inference(fallback="error")(bert.BertLayer.forward))
        for _ in range(2):
            found = model(ids, attention_mask=mask)
            same(found.last_hidden_state, expected.last_hidden_state, 1e-4)
    served(captures=1, bindings=12)
    assert counts()["hits"] >= 12
    assert len(list(store.rglob("graph.onnx"))) == 1


def test_a_change_that_moves_no_counter_is_seen_too() -> None:
    layer = rich()
    twice(layer, layer.compute, X)
    layer.linear.weight.data.copy_(torch.randn(4, 4))
    twice(layer, layer.compute, X)
    served(captures=1, bindings=2)


@pytest.mark.parametrize("verify", ["build", "always"])
def test_a_weight_that_changes_while_it_is_verified_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, store: Path, verify: str
) -> None:
    class Hot(Block):
        forward = inference(fallback="error", verify=verify)(Block.forward)

    layer = Hot()
    bind, changes = _compile.bind, [1]

    def bind_and_change(*arguments: Any) -> Any:
        route = bind(*arguments)
        if changes:  # what another thread does between the binding and the eager run
            layer.linear.weight = torch.nn.Parameter(layer.linear.weight + changes.pop())
        return route

    monkeypatch.setattr(_compile, "bind", bind_and_change)
    x = torch.ones(2, 4)
    with torch.no_grad():
        for _ in range(3):
            same(layer(x), Block.forward(layer, x))
    found = counts()
    assert (found["captures"], found["eager_calls"]) == (1, 0) and found["hits"] > 0, found
    assert not list(store.rglob("failures/*"))


VIEWS = {
    "conjugate": lambda: torch.complex(torch.ones(4), torch.arange(4.0)).conj(),
    "negative": lambda: torch.complex(torch.ones(4), torch.arange(4.0)).conj().imag,
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_weight_that_torch_computes_when_it_is_read(name: str) -> None:
    class Turned(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("turned", VIEWS[name]())

        @inference(fallback="error", backend="onnxruntime")
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.turned * x).real

    layer, x = Turned().eval(), torch.arange(4.0)
    for _ in range(2):
        same(layer(x), Turned.forward.__wrapped__(layer, x))
    layer.turned.mul_(3)
    same(layer(x), Turned.forward.__wrapped__(layer, x))
    turned = layer.turned.resolve_neg().resolve_conj() * 2
    layer.turned.data = turned
    same(layer(x), Turned.forward.__wrapped__(layer, x))
    assert counts()["captures"] >= 1 and counts()["eager_calls"] == 0


#: What is asked of a tensor that is not computed with, and two of the same kind that tell apart what is asked.
FORMS: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "shape": (lambda table: table.shape[0], torch.ones(3), torch.ones(4)),
    "type": (lambda table: table.dtype.itemsize, torch.ones(3), torch.ones(3, dtype=torch.float64)),
    "layout": (lambda table: table.stride()[0], torch.ones(3, 3), torch.ones(3, 2).t().contiguous().t()),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("way", ["tensor", "data"])
def test_the_form_of_a_tensor_that_no_value_is_taken_of(name: str, way: str) -> None:
    ask, before, after = FORMS[name]

    class Sized(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", before.clone())
            self.register_buffer("other", torch.zeros(()))

        @inference(backend="onnxruntime")
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * ask(self.table) + self.other.dim()

    layer = Sized().eval()
    for _ in range(2):
        same(layer(X), Sized.forward.__wrapped__(layer, X))
    if way == "data":
        layer.table.data = after
    else:
        layer.table = after
    for _ in range(2):
        same(layer(X), Sized.forward.__wrapped__(layer, X))
    layer.other.data = torch.zeros(1)
    same(layer(X), Sized.forward.__wrapped__(layer, X))

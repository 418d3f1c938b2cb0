"""Other tracers and inspectors find what they would find had the layer never been wrapped."""

from __future__ import annotations

import copy
import inspect
import logging
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_support import counts, same

from hybrid_infer import inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Plain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, input: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return self.linear(input) * scale


class Decorated(Plain):
    forward = inference(Plain.forward)


def wrapped() -> torch.nn.Module:
    layer: torch.nn.Module = inference(Plain())
    return layer


def bound() -> torch.nn.Module:
    layer = Plain()
    layer.forward = inference(layer.forward)  # type: ignore[method-assign]
    return layer


every_form = pytest.mark.parametrize("make", [wrapped, bound, Decorated])


@every_form
def test_the_signature_is_the_method_s(make: Callable[[], torch.nn.Module]) -> None:
    layer = make()
    assert inspect.signature(layer.forward) == inspect.signature(Plain().forward)
    assert layer.forward.__name__ == "forward" and layer.forward.__self__ is layer  # type: ignore[union-attr]


TRACERS: dict[str, Callable[[torch.nn.Module], Callable[..., torch.Tensor]]] = {
    "torch.export": lambda layer: torch.export.export(layer, (X,)).module(),
    "torch.export, strict": lambda layer: torch.export.export(layer, (X,), strict=True).module(),
    "torch.export, by keyword": lambda layer: (
        lambda x: torch.export.export(layer, (), {"input": X}).module()(input=x)
    ),
    "torch.jit.trace": lambda layer: torch.jit.trace(layer, (X,)),
    "torch.compile": lambda layer: torch.compile(layer, backend="eager", fullgraph=True),
    "torch.fx": torch.fx.symbolic_trace,
    "torch.fx, inside": lambda layer: torch.fx.symbolic_trace(torch.nn.Sequential(layer)),
}


@every_form
@pytest.mark.parametrize("tracer", TRACERS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_tracer_sees_the_undecorated_layer(
    tracer: str, make: Callable[[], torch.nn.Module], caplog: pytest.LogCaptureFixture
) -> None:
    layer = make().eval()
    with caplog.at_level(logging.INFO, "hybrid_infer"), torch.no_grad():
        traced = TRACERS[tracer](layer)
        found = traced(X)
        expected = layer.linear(X) * 2.0
    same(found, expected)
    assert not [r for r in caplog.records if r.name == "hybrid_infer"]
    with torch.no_grad():
        same(layer(X), expected)
    assert counts()["eager_calls"] == 0 and counts()["bindings"] == 1


class Steps(torch.nn.Module):
    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.linear = steps, torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        for _ in range(self.steps):
            x = torch.sigmoid(x) + x * 0.1  # of which each is held by two
        return x


@pytest.mark.parametrize("steps", [3, 40, 150])
@pytest.mark.parametrize("inside", [False, True])
def test_a_graph_of_torch_fx(inside: bool, steps: int) -> None:
    def made() -> Any:
        graph = torch.fx.symbolic_trace(Steps(steps).eval())
        return torch.nn.Sequential(graph) if inside else graph

    for _ in range(2):
        eager = made()
        hot = inference(made(), backend="onnxruntime")
        hot.load_state_dict(eager.state_dict())
        with torch.no_grad():
            for rows in (2, 2, 3, 4):
                x = torch.rand(rows, 4)
                same(hot(x), eager(x))
    assert counts()["captures"] == 2 and not counts()["fallbacks"]


def test_a_graph_of_torch_fx_that_is_changed() -> None:
    graph = torch.fx.symbolic_trace(Steps(3).eval())
    hot = inference(graph.forward, backend="onnxruntime")
    x = torch.rand(2, 4)
    with torch.no_grad():
        for _ in range(2):
            same(hot(x), graph(x))
        for node in graph.graph.nodes:
            if node.target is torch.sigmoid:
                node.target = torch.tanh
        graph.recompile()
        expected = graph(x)
        again = inference(graph, backend="onnxruntime")
        for _ in range(2):
            same(again(x), expected)
            same(graph.forward(x), expected)


def test_graphs_of_torch_fx_that_a_layer_keeps() -> None:
    """As torchvision's create_feature_extractor makes them; tables of operators that are gone are in no copy."""

    class Dual(torch.fx.GraphModule):
        def __init__(self, root: Any, graph: Any) -> None:
            super().__init__(root, graph)
            self.graph = self.train_graph = graph

    class Flat(Steps):
        def forward(self, x: Any) -> Any:
            return torch.flatten(super().forward(x), 1)

    root = Flat(3).eval()
    graph = torch.fx.symbolic_trace(root).graph
    (node,) = (node for node in graph.nodes if node.target is torch.flatten)
    node.replace_all_uses_with(node.args[0])
    graph.erase_node(node)
    assert not all(graph._find_nodes_lookup_table.table.values())
    dual = Dual(root, graph).eval()
    hot = inference(copy.deepcopy(dual), backend="onnxruntime")
    with torch.no_grad():
        for rows in (2, 2, 3, 4):
            x = torch.rand(rows, 4)
            same(hot(x), dual(x))
    assert counts()["captures"] == 2 and not counts()["fallbacks"]


class ByMode(torch.fx.GraphModule):
    """A graph for each mode, and copies in training mode: as torchvision's create_feature_extractor makes it."""

    def __init__(self, root: Any, train_graph: Any, eval_graph: Any) -> None:
        super(torch.fx.GraphModule, self).__init__()
        self.train_graph, self.eval_graph = train_graph, eval_graph
        self.layer = torch.nn.Module()
        self.layer.norm = root.layer.norm
        self.train()
        self.graph = train_graph
        self._tracer_cls = None

    def train(self, mode: bool = True) -> Any:
        if mode != self.training:
            self.graph = self.train_graph if mode else self.eval_graph
        return super().train(mode)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = memo[id(self)] = type(self).__new__(type(self))
        held = types.SimpleNamespace(**copy.deepcopy(self.__dict__, memo)["_modules"])
        graphs = (copy.deepcopy(each, memo) for each in (self.train_graph, self.eval_graph))
        ByMode.__init__(made, held, *graphs)
        return made


class Normed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Module()
        self.layer.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        y = self.layer.norm(x)
        return y * 2 if self.training else y * 3


@pytest.mark.parametrize("inside", [False, True])
def test_layers_whose_copies_are_in_training_mode(inside: bool) -> None:
    def made() -> Any:
        layer = Normed()
        training, evaluation = (torch.fx.symbolic_trace(layer.train(mode)).graph for mode in (True, False))
        dual = ByMode(layer, training, evaluation).eval()
        return torch.nn.Sequential(torch.nn.Identity(), dual).eval() if inside else dual

    eager, hot = made(), inference(made(), backend="onnxruntime")
    with torch.no_grad():
        for rows in (2, 2, 3, 4):
            x = torch.rand(rows, 4)
            same(hot(x), eager(x))
    assert counts()["captures"] == 2 and not counts()["fallbacks"]
    assert not any(each.training for each in hot.modules())

"""Dicts of settings: what a method reads there counts, and what stands beside it does not."""

from __future__ import annotations

import copy
import json
import operator
import pathlib
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from forks import forked
from support import counts, eagerly, layer_class, served

from hybrid_infer import inference


def make(framework: Any, way: Callable[..., Any], **settings: Any) -> Any:
    class Inner(layer_class(framework)):  # type: ignore[misc]
        def __init__(self, config: Any) -> None:
            super().__init__()
            self.config = config

        def forward(self, x: Any) -> Any:
            return x * self.config["scale"]

    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.config = framework.nn.Linear(4, 4), settings
            self.configs, self.inner = [settings], Inner(settings)

        def eager(self, x: Any) -> Any:
            return way(self, self.linear(x))

        forward = inference(eager)

    layer = Net()
    layer.eval()
    return layer


def ask(framework: Any, layer: Any) -> None:
    with framework.no_grad():
        for n in range(2):
            x = framework.ones([2, 4]) * n
            found, expected = layer(x), layer.eager(x)
            pairs = [(found, expected)] if not isinstance(found, tuple) else zip(found, expected, strict=True)
            for mine, eager in pairs:
                if isinstance(eager, (dict, list)):
                    assert type(mine) is type(eager) and mine == eager
                else:
                    assert bool(framework.allclose(mine, eager, atol=1e-6))


#: What looks at the entry "scale" of the settings, and at no other.
SINGLE: dict[str, Callable[..., Any]] = {
    "item": lambda net, y: y * net.config["scale"],
    "get": lambda net, y: y * net.config.get("scale", 1.0),
    "in": lambda net, y: y * (net.config["scale"] + 1 if "scale" in net.config else 1.0),
    "itemgetter": lambda net, y: y * operator.itemgetter("scale")(net.config),
    "format": lambda net, y: y * float("{scale}".format_map(net.config)),
    "percent": lambda net, y: y * float("%(scale)s" % net.config),  # noqa: UP031
    "of a sublayer": lambda net, y: net.inner(y),
    "by a local": lambda net, y: (lambda config: y * config["scale"])(net.config),
}
#: What looks at all of it.
WHOLE: dict[str, Callable[..., Any]] = {
    "len": lambda net, y: y * len(net.config),
    "iteration": lambda net, y: y * sum(len(name) for name in net.config),
    "items": lambda net, y: y * sum(len(str(each)) for each in net.config.items()),
    "values": lambda net, y: y * len(str([*net.config.values()])),
    "unpacked": lambda net, y: y * len(str({**net.config})),
    "as keywords": lambda net, y: y * (lambda scale, **others: scale + len(str(others)))(**net.config),
    "copied": lambda net, y: y * len(str(dict(net.config))),
    "copy": lambda net, y: y * len(str(copy.deepcopy(net.config))),
    "joined": lambda net, y: y * len(net.config | {"a": 1}),
    "equal": lambda net, y: y * (2 if net.config == {"scale": 2.0, "run": "a"} else 3),
    "equal to": lambda net, y: y * (2 if {"scale": 2.0, "run": "a"} == net.config else 3),  # noqa: SIM300
    "text": lambda net, y: y * len(str(net.config)),
    "json": lambda net, y: y * len(json.dumps(net.config)),
    "truth": lambda net, y: y * (2 if net.config else 3),
    "result": lambda net, y: (y, net.config, [net.config]),
    "in a list": lambda net, y: y * net.configs[0]["scale"],
}


@pytest.mark.parametrize("name", SINGLE)
def test_another_entry_does_not_count(framework: Any, name: str) -> None:
    layer = make(framework, SINGLE[name], scale=2.0, run="a", path=pathlib.Path("a"))
    ask(framework, layer)
    served(captures=1)
    layer.config["run"] = "b"
    layer.config["more"] = 3
    ask(framework, layer)
    served(captures=1)
    layer.config["scale"] = 5.0
    ask(framework, layer)
    served(captures=2)
    layer.config["scale"] = 2.0
    ask(framework, layer)
    served(captures=2)
    other = type(layer)()
    other.eval()
    other.config = other.inner.config = {"path": None, "scale": 2.0}
    ask(framework, other)
    served(captures=2)


@pytest.mark.parametrize("name", WHOLE)
def test_what_looks_at_all_of_it_depends_on_all(framework: Any, name: str) -> None:
    layer = make(framework, WHOLE[name], scale=2.0, run="a")
    ask(framework, layer)
    served(captures=1)
    for run in ("another", "a", ["b", {"c": 1}]):
        layer.config["run"] = run
        ask(framework, layer)
    layer.config["new"] = 1
    ask(framework, layer)
    del layer.config["new"]
    ask(framework, layer)
    assert counts()["eager_calls"] == 0, counts()


def test_an_entry_that_is_not_there(framework: Any) -> None:
    layer = make(framework, lambda net, y: y * net.config.get("scale", 3.0), run="a")
    ask(framework, layer)
    layer.config["other"] = 1
    ask(framework, layer)
    served(captures=1)
    layer.config["scale"] = 2.0
    ask(framework, layer)
    served(captures=2)
    del layer.config["scale"]
    ask(framework, layer)
    served(captures=2)


def test_dicts_in_dicts(framework: Any) -> None:
    layer = make(
        framework, lambda net, y: y * net.config["model"]["scale"], model={"scale": 2.0, "name": "a"}, run={"id": 1}
    )
    ask(framework, layer)
    layer.config["model"]["name"], layer.config["run"]["id"] = "b", 2
    ask(framework, layer)
    served(captures=1)
    layer.config["model"]["scale"] = 3.0
    ask(framework, layer)
    layer.config["model"] = {"scale": 4.0}
    ask(framework, layer)
    served(captures=3)
    layer.config["model"] = {"scale": 3.0, "more": []}
    ask(framework, layer)
    served(captures=3)


def test_a_list_in_one_counts_as_a_whole(framework: Any) -> None:
    layer = make(framework, lambda net, y: y * net.config["scales"][0], scales=[2.0, 3.0], run="a")
    ask(framework, layer)
    layer.config["scales"][1] = 4.0
    ask(framework, layer)
    layer.config["scales"][0] = 4.0
    ask(framework, layer)
    served(captures=3)


def test_a_class_that_is_compared(framework: Any) -> None:
    """Where no look-up is noted."""
    layer = make(framework, lambda net, y: y * (net.config["scale"] if type(net.config) is dict else 9.0), scale=2.0)
    ask(framework, layer)
    layer.config["other"] = 1
    ask(framework, layer)
    layer.config["scale"] = 7.0
    ask(framework, layer)
    served(captures=3)


@pytest.mark.torch
def test_branches_that_torch_traces() -> None:
    torch = framework = pytest.importorskip("torch")

    def way(net: Any, y: Any) -> Any:
        return torch.cond(y.sum() > 0, lambda y: y * net.config["scale"], lambda y: y - net.config["scale"], (y,))

    layer = make(framework, way, scale=2.0, run="a")
    ask(framework, layer)
    for scale in (5.0, 6.0):
        layer.config["scale"] = scale
        ask(framework, layer)
    assert counts()["hits"] >= 3, counts()


@pytest.mark.parametrize(
    "look",
    [
        lambda d, k: dict.get(d, k), lambda d, k: next(map(dict.__getitem__, [d], [k])),
        lambda d, k: d.__class__.get(d, k),
    ],
)
def test_look_ups_on_the_class(framework: Any, look: Any) -> None:
    """Which the dict that is looked at does not answer: all of it counts."""
    layer = make(framework, lambda self, x: x * self.look(self.config, "scale"), scale=2.0, run="a")
    layer.look = look
    ask(framework, layer)
    layer.config["scale"] = 3.0
    ask(framework, layer)


def test_the_name_of_its_class(framework: Any) -> None:
    layer = make(framework, lambda net, y: y * len(type(net.config).__name__) * net.config["scale"], scale=2.0)
    ask(framework, layer)
    served(captures=1)


def test_one_that_is_written_to(framework: Any) -> None:
    def way(net: Any, y: Any) -> Any:
        net.config["calls"] += 1
        return y * net.config["scale"]

    layer = make(framework, way, scale=2.0, calls=0)
    eager = make(framework, way, scale=2.0, calls=0)
    with framework.no_grad():
        for _ in range(3):
            layer(framework.ones([2, 4]))
            eager.eager(framework.ones([2, 4]))
    assert layer.config == eager.config
    eagerly("it changes self.config")


def test_one_that_comes_to_hold_a_tensor(framework: Any) -> None:
    def way(net: Any, y: Any) -> Any:
        return y * net.config["scale"] + (net.config["shift"] if net.config["shift"] is not None else 0)

    layer = make(framework, way, scale=2.0, shift=None)
    ask(framework, layer)
    layer.config["shift"] = framework.ones([4])
    ask(framework, layer)
    layer.config["shift"] = framework.ones([4]) * 3
    ask(framework, layer)
    layer.config["shift"] = None
    ask(framework, layer)
    assert counts()["eager_calls"] == 0, counts()


def test_threads(framework: Any) -> None:
    layer, faults = make(framework, SINGLE["item"], scale=2.0, run=0), []
    ask(framework, layer)

    def work(number: int) -> None:
        try:
            for n in range(10):
                layer.config["run"] = number * 100 + n
                ask(framework, layer)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not faults
    served(captures=1)


SCRIPT = """
import importlib, sys, time
from hybrid_infer import inference, stats
framework = importlib.import_module(sys.argv[1])
nn = framework.nn

class Net(nn.Module if sys.argv[1] == "torch" else nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.config = {"scale": float(sys.argv[2]), "begun": time.time(), "run": {"id": time.time()}}

    @inference(backend="onnxruntime")
    def forward(self, x):
        return self.linear(x) * self.config["scale"]

layer = Net()
layer.eval()
with framework.no_grad():
    for _ in range(3):
        x = framework.ones([2, 4])
        assert bool(framework.allclose(layer(x), layer.linear(x) * float(sys.argv[2]), atol=1e-6))
found = stats()["__main__.Net.forward"]
print(found["captures"], found["hits"], found["fallbacks"])
"""


def test_the_next_process_captures_nothing(framework: Any) -> None:
    def run(scale: str) -> str:
        return forked(framework.__name__, SCRIPT, framework.__name__, scale)

    assert run("2.0") == "1 2 {}"
    assert run("2.0") == "0 3 {}"
    assert run("3.0") == "1 2 {}"


class Foreign(dict[str, Any]):
    pass


USUAL = {"rate": 2.0, "run": 1}
DERIVED, ORDERED, DEFAULT = Foreign(USUAL), OrderedDict(USUAL), defaultdict(int, USUAL)


@pytest.mark.parametrize(
    "equal",
    [lambda config: DERIVED == config, lambda config: ORDERED != config, lambda config: [DEFAULT] == [config],  # noqa: SIM300
     lambda config: Foreign(USUAL) == config],
    ids=["derived", "ordered", "default in a list", "made there"],
)  # fmt: skip
def test_another_class_of_dicts_that_is_compared(framework: Any, equal: Callable[..., Any]) -> None:
    layer = make(framework, lambda self, x: x * (2 if equal(self.config) else 3), **USUAL)
    for rate in (2.0, 5.0, 2.0):
        layer.config["rate"] = rate
        ask(framework, layer)

"""Functions and classes of a library that share a name: lambdas, and what a function of it makes at each call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from process_support import fresh

pytestmark = [pytest.mark.torch, pytest.mark.processes]

LIBRARY = """
import torch

ACTS = {"a": lambda x: x * 2, "b": lambda x: x * 3}


def branched(kind):
    if kind == "a":
        def inner(x):
            return x - 1
    else:
        def inner(x):
            return x + 1
    return inner


def with_default(kind):
    return lambda x, n=1.0 + (kind == "a"): x * n


def closed(kind):
    other = 5.0
    if kind == "a":
        def inner(x):
            return x * other
    else:
        def inner(x):
            return x + other
    return inner


def layer(kind):
    class Act(torch.nn.Module):
        if kind == "a":
            def forward(self, x):
                return x * 4
        else:
            def forward(self, x):
                return self.shifted(x)

        def shifted(self, x):
            return x + 4
    return Act()


def layer_with_a_helper(kind):
    class Act(torch.nn.Module):
        def forward(self, x):
            return self.helper(x)

        if kind == "a":
            def helper(self, x):
                return x * 4
        else:
            def helper(self, x):
                return x + 4
    return Act()


def layer_with_a_cell(kind):
    factor = 1.0 + (kind == "a")

    class Act(torch.nn.Module):
        def forward(self, x):
            return x * factor
    return Act()


def layer_with_a_constant(kind):
    class Act(torch.nn.Module):
        factor = 1.0 + (kind == "a")

        def forward(self, x):
            return x * self.factor
    return Act()


MAKERS = {
    "lambda": ACTS.get, "branched": branched, "default": with_default, "closed": closed, "layer": layer,
    "helper": layer_with_a_helper, "cell": layer_with_a_cell, "constant": layer_with_a_constant,
}
"""

PROGRAM = """
import functools, json, sys
import torch
sys.path.insert(0, "site-packages")
import lib
from hybrid_infer import inference, stats

torch.set_grad_enabled(False)
X = torch.linspace(-1, 1, 8).reshape(2, 4)

def closure(act):
    return inference(lambda x: act(x) + 1, fallback="error")

def default(act):
    return inference(lambda x, act=act: act(x) + 1, fallback="error")

def partial(act):
    held = functools.partial(act)
    return inference(lambda x: held(x) + 1, fallback="error")

class Layer(torch.nn.Module):
    def __init__(self, act, held):
        super().__init__()
        self.act, self.acts, self.held = act, [act], held

    def forward(self, x):
        return (self.acts[0] if self.held else self.act)(x) + 1

def attribute(act):
    return inference(Layer(act, False).eval(), fallback="error")

def element(act):
    return inference(Layer(act, True).eval(), fallback="error")

def named(act):
    global ACT
    ACT = act
    return inference(uses_a_global, fallback="error")

def uses_a_global(x):
    return ACT(x) + 1

wrong = []
for name, make in lib.MAKERS.items():
    for door in (closure, default, partial, attribute, element, named):
        for kind in sys.argv[1]:
            act = make(kind)
            hot, expected = door(act), act(X) + 1
            if not (torch.allclose(hot(X), expected) and torch.allclose(hot(X), expected)):
                wrong.append([name, door.__name__, kind])
print(json.dumps([wrong, sum(each["captures"] for each in stats().values())]))
"""


def test_namesakes_in_a_library(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    (site / "lib-1.0.dist-info").mkdir(parents=True)
    (site / "lib-1.0.dist-info" / "METADATA").write_text("Name: lib\nVersion: 1.0\n")
    (site / "lib.py").write_text(LIBRARY)

    def run(kinds: str) -> list[object]:
        found: list[object] = json.loads(
            fresh(PROGRAM, cache=tmp_path / "cache", folder=tmp_path, arguments=(kinds,))
        )
        return found

    wrong, _ = run("aba")
    assert wrong == []
    assert run("b") == [[], 0]

"""Classes of which a method makes objects without naming them: what they make counts in the next process too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from process_support import run_forked

PROGRAM = """
import collections, json, sys, typing
import {framework} as framework
from hybrid_infer import inference, stats

class Made:
    def __init__(self, a={default}):
        self.k = a * {factor}

    @classmethod
    def made(cls):
        return cls(5)

class New:
    def __new__(cls):
        found = object.__new__(cls)
        found.k = {factor}
        return found

class Named(typing.NamedTuple):
    k: int = {factor}

Plain = collections.namedtuple("Plain", "k", defaults=[{factor}])

class Layer({base}):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.kinds, self.table, self.one = kind, [kind], {{"a": kind}}, kind()

    def attribute(self, x): return x * self.kind().k
    def element(self, x): return x * self.kinds[0]().k
    def entry(self, x): return x * self.table["a"]().k
    def again(self, x): return x * self.one.__class__().k
    def mapped(self, x): return x * [*map(lambda make: make(), self.kinds)][0].k

def passed(x, kind): return x * kind().k
def inside(x, kinds): return x * kinds["a"]().k
def by_method(x, kind): return x * kind.made().k
def of_object(x, one): return x * one.made().k

found, x = {{}}, framework.ones([2])

def note(name, method, *args):
    hot = inference(method, verify="{verify}", fallback="error")
    with framework.no_grad():
        for _ in range(2):
            found[name] = [float(hot(x, *args)[0]), float(method(x, *args)[0])]

for kind in (Made, New, Named, Plain):
    layer = Layer(kind)
    for name in ("attribute", "element", "entry", "again", "mapped"):
        note(f"{{kind.__name__}} {{name}}", getattr(layer, name))
    note(f"{{kind.__name__}} passed", passed, kind)
    note(f"{{kind.__name__}} inside", inside, {{"a": kind}})
note("by method", by_method, Made)
note("of object", of_object, Made())
print(json.dumps([found, sum(each["captures"] for each in stats().values())]))
"""


@pytest.mark.parametrize(
    ("name", "base", "verify"),
    [
        pytest.param("torch", "framework.nn.Module", "off", marks=pytest.mark.torch),
        pytest.param("torch", "framework.nn.Module", "build", marks=pytest.mark.torch),
        pytest.param("paddle", "framework.nn.Layer", "off", marks=pytest.mark.paddle),
        pytest.param("paddle", "framework.nn.Layer", "build", marks=pytest.mark.paddle),
    ],
)
def test_a_class_that_no_name_leads_to_is_edited(name: str, base: str, verify: str, tmp_path: Path) -> None:
    pytest.importorskip(name)

    def run(default: int, factor: int) -> tuple[dict[str, Any], int]:
        program = PROGRAM.format(framework=name, base=base, verify=verify, default=default, factor=factor)
        found, captures = json.loads(run_forked(name, program, tmp_path / "cache", tmp_path))
        assert {key: pair for key, pair in found.items() if pair[0] != pair[1]} == {}
        return found, captures

    first, captures = run(1, 2)
    assert captures == len(first)
    assert run(1, 2)[1] == 0
    assert run(1, 3)[1] == len(first)
    assert run(7, 3)[1] >= 7  # those of the class whose default it is

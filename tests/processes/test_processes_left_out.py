"""What a class leaves out of its copies, where the layer holds it elsewhere too: its class counts as any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from process_support import run_forked

PROGRAM = """
import json
import {framework} as framework
from hybrid_infer import inference, stats

class Scale:
    def __init__(self):
        self.gain = 1.0

    def __call__(self, x):
        return x * {factor}

class Part:
    def __init__(self, owner):
        self.owner, self.size = owner, 1

    def __getstate__(self):
        return {{"owner": None, "size": self.size}}

class Owner({base}):
    def __init__(self):
        super().__init__()
        self.part, self.kind = [Part(self)], Scale

    def forward(self, x):
        return self.kind()(x)

class Leaves({base}):
    def __init__(self):
        super().__init__()
        self.held = self.again = self.held_by(Scale)

    def held_by(self, kind):
        return kind()

    def __getstate__(self):
        return dict(vars(self), again=None)

    def forward(self, x):
        return self.held(x)

class Looks(Leaves):
    def held_by(self, kind):
        return [kind]

    def forward(self, x):
        return getattr(self, "held")[0]()(x)

class Element(Leaves):
    def held_by(self, kind):
        return ({{"a": kind()}},)

    def forward(self, x):
        return self.held[0]["a"](x)

found, x = {{}}, framework.ones([2])
for kind in (Owner, Leaves, Looks, Element):
    layer = kind()
    layer.eval()
    hot = inference(type(layer).forward, fallback="error")
    with framework.no_grad():
        for _ in range(2):
            found[kind.__name__] = [float(hot(layer, x)[0]), float(kind.forward(layer, x)[0])]
print(json.dumps([found, sum(each["captures"] for each in stats().values())]))
"""


@pytest.mark.parametrize(
    ("name", "base"),
    [
        pytest.param("torch", "framework.nn.Module", marks=pytest.mark.torch),
        pytest.param("paddle", "framework.nn.Layer", marks=pytest.mark.paddle),
    ],
)
def test_the_class_of_what_is_also_held_elsewhere_is_edited(name: str, base: str, tmp_path: Path) -> None:
    pytest.importorskip(name)

    def run(factor: int) -> tuple[dict[str, Any], int]:
        program = PROGRAM.format(framework=name, base=base, factor=factor)
        found, captures = json.loads(run_forked(name, program, tmp_path / "cache", tmp_path))
        assert {key: pair for key, pair in found.items() if pair[0] != pair[1]} == {}
        return found, captures

    first, captures = run(2)
    assert captures == len(first)
    assert run(2)[1] == 0
    assert run(3)[1] == len(first)

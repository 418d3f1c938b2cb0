"""A class of arguments that is defined anew is another one: no call is answered for its namesake."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support import counts

from hybrid_infer import inference

TUPLE = """
from typing import Any, NamedTuple

class P(NamedTuple):
    {first}: Any
    {second}: Any

    def scale(self): return {scale}
"""
DATACLASS = """
import dataclasses
from typing import Any

@dataclasses.dataclass
class P:
    {first}: Any
    {second}: Any

    def scale(self): return {scale}
"""
OBJECT = """
class P:
    def __init__(self, a, b):
        self.{first}, self.{second} = (a, b) if "{first}" == "a" else (b, a)

    def scale(self): return {scale}
"""
ENUM = """
import enum

class Mode(enum.Enum):
    ON = {scale}

class P:
    def __init__(self, a, b):
        self.a, self.b, self.mode = a, b, Mode.ON

    def scale(self): return self.mode.value
"""
TYPE = """
class Kind:
    scale = {scale}

class P:
    def __init__(self, a, b):
        self.a, self.b, self.kind = a, b, Kind

    def scale(self): return self.kind.scale
"""
DEFINITIONS = {"tuple": TUPLE, "dataclass": DATACLASS, "object": OBJECT, "enum": ENUM, "type": TYPE}


@pytest.fixture
def cells() -> Iterator[Any]:
    """A module in which cells of a notebook run."""
    module = types.ModuleType("arguments_of_a_notebook")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def run(module: Any, cell: str) -> None:
    exec(compile(cell, "<cell>", "exec"), vars(module))


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_class_of_arguments_that_is_defined_anew(framework: Any, cells: Any, name: str, verify: str) -> None:
    def scaled(x: Any, p: Any) -> Any:
        return x * p.a * p.scale() + p.b

    hot, one = inference(scaled, verify=verify), framework.ones([2])
    held = []
    for fields, scale in (("a b", 2), ("b a", 2), ("a b", 2), ("a b", 3), ("b a", 3), ("a b", 2)):
        first, second = fields.split()
        run(cells, DEFINITIONS[name].format(first=first, second=second, scale=scale))
        for size in (2, 3, 4):
            x, p = framework.ones([size]), cells.P(a=one[:1] * 5, b=one[:1] * 7)
            for _ in range(2):
                np.testing.assert_allclose(hot(x, p).numpy(), [5 * scale + 7] * size)
        held.append(cells.P)
    assert counts()["hits"] and not counts()["fallbacks"], counts()

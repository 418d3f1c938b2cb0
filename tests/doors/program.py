"""A module that is written from cases, imported, and changed."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from doors.kind import Kind
from doors.kinds import EAGER, FUNCTIONS, KINDS, OPAQUE
from doors.places import PLACES, Place

_FRAMEWORK = {
    "torch": """
import torch
from torch.nn import Module as Layer

no_grad = torch.no_grad

def linear():
    return torch.nn.Linear(4, 4)

def tensor(values):
    return torch.tensor(values)

def parameter(values):
    return torch.nn.Parameter(torch.tensor(values))

def example():
    return torch.linspace(-1, 1, 8).reshape(2, 4)
""",
    "paddle": """
import paddle
from paddle.nn import Layer

no_grad = paddle.no_grad

def linear():
    return paddle.nn.Linear(4, 4)

def tensor(values):
    return paddle.to_tensor(values)

def parameter(values):
    start = paddle.nn.initializer.Assign(values)
    return paddle.create_parameter([len(values)], 'float32', default_initializer=start)

def example():
    return paddle.linspace(-1, 1, 8).reshape([2, 4])
""",
}
_HEAD = """
import argparse, array, collections, ctypes, dataclasses, datetime, decimal, enum, fractions, functools, logging, math
import operator, pathlib, queue, re, sys, threading, types, weakref
import numpy as np
import cfg_{name} as cfg

CFG = 'cfg_{name}'

def import_of(name):
    import cfg_{name} as found
    return getattr(found, name)

def fill(held, value):
    with no_grad():
        held.fill_(value)

@dataclasses.dataclass
class Batch:
    x: object

class Meta_(type(Layer)):
    pass
"""


@dataclass(frozen=True)
class Case:
    """A kind of value in a place."""

    place: Place
    kind: Kind

    @property
    def name(self) -> str:
        return f"k_{self.place.name}_{self.kind.name}"

    @property
    def wrapped(self) -> bool:
        return self.place.in_class and self.kind.name in FUNCTIONS

    @property
    def make(self) -> str:
        return f"staticmethod({self.kind.make})" if self.wrapped else self.kind.make

    def fill(self, text: str) -> str:
        other = (*self.kind.others, self.kind.make)[0]
        return text.replace("{name}", self.name).replace("{make}", self.make).replace("{other}", other)


#: What cannot be: a layer keeps parameters and sublayers elsewhere than in its ``__dict__``, and hides nothing by them.
_IMPOSSIBLE = {(place, kind) for place in ("vars", "shadowed") for kind in ("parameter", "layer")}


def cases(framework: str, places: Iterable[str] = PLACES, kinds: Iterable[str] = ()) -> list[Case]:
    """Every one of the kinds (of all that are captured and kept, by default) in every one of the places."""
    kinds = [*kinds] or [kind for kind in KINDS if kind not in (*OPAQUE, *EAGER[framework])]
    return [Case(PLACES[p], KINDS[k]) for p in places for k in kinds if _possible(framework, p, k)]


def kept(cases: Sequence[Case]) -> list[Case]:
    """Those that do not keep a method off the disk, as a tensor does that an instance gets from its class."""
    return [c for c in cases if c.place.name not in ("class", "base") or c.kind.name not in ("tensor", "parameter")]


def selection(framework: str, start: int = 0, each: int = 3) -> list[Case]:
    """Some of the kinds in every one of the places."""
    found = []
    for n, place in enumerate(PLACES):
        possible = cases(framework, [place])
        turn = (start + n * each) % len(possible)
        found += [*possible[turn:], *possible[:turn]][:each]
    return found


def _possible(framework: str, place: str, kind: str) -> bool:
    where = PLACES[place]
    if place in ("default", "keyword") and kind in _NO_ARGUMENT:
        return False
    # A tensor that no twin can take the place of is refused there.
    if framework == "paddle" and kind.startswith(("tensor", "parameter", "layer")):
        found = where.of.startswith("layer") and place not in ("vars", "shadowed")
        found = found or (place in ("global", "global_of_helper", "closure") and kind not in _HIDDEN)
        if not found:
            return False
    return (place, kind) not in _IMPOSSIBLE and not (where.fallback and not KINDS[kind].others)


#: Tensors below an object, which are found on layers alone.
_HIDDEN = ("tensor_object", "tensor_slots")
#: No signature takes these, so that a method with one as its default runs eagerly.
_NO_ARGUMENT = ("defaultdict", "factory", "counter", "dict_class")


class Program:
    """A module that was written and is imported, with one instance of its layer."""

    def __init__(self, folder: Path, name: str, framework: str, cases: Sequence[Case]) -> None:
        self.folder, self.name, self.framework, self.cases = folder, name, framework, cases
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        self.module: ModuleType = importlib.import_module(f"program_{name}")
        sys.path.remove(str(folder))
        self.layer = self.module.Method()
        self.layer.eval()

    @property
    def function(self) -> Any:
        return type(self.layer).forward

    def call(self, function: Any) -> list[Any]:
        """The results of one call as arrays, one per case."""
        with self.module.no_grad():
            return [result.numpy() for result in function(self.module.Batch(self.module.example()))]

    def value(self, text: str) -> Any:
        return eval(text, {**vars(self.module)})

    def run(self, value: Any, statements: str) -> None:
        exec(statements, {**vars(self.module), "v": value})

    def holder(self, case: Case) -> Any:
        names = {"module": self.module, "layer": self.layer, "method": self.function, "sys": sys}
        return eval(case.fill(case.place.of), names)

    def get(self, case: Case) -> Any:
        holder, name = self.holder(case), case.name
        if case.place.by == "item":
            return holder[name]
        if case.place.by == "cell":
            return _cell(holder, name).cell_contents
        if case.place.by == "default":
            return holder.__defaults__[_position(holder, name)]
        if case.place.by == "keyword":
            return holder.__kwdefaults__[name]
        held = vars(holder)[name] if name in vars(holder) else getattr(holder, name)
        return held.__func__ if isinstance(held, staticmethod) else held

    def put(self, case: Case, value: Any) -> None:
        holder, name = self.holder(case), case.name
        if case.place.by == "item":
            holder[name] = value
        elif case.place.by == "cell":
            _cell(holder, name).cell_contents = value
        elif case.place.by == "default":
            given = list(holder.__defaults__)
            given[_position(holder, name)] = value
            holder.__defaults__ = tuple(given)
        elif case.place.by == "keyword":
            holder.__kwdefaults__ = {**holder.__kwdefaults__, name: value}
        else:
            setattr(holder, name, staticmethod(value) if case.wrapped else value)


def _cell(function: Any, name: str) -> Any:
    return function.__closure__[function.__code__.co_freevars.index(name)]


def _position(function: Any, name: str) -> int:
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return names[len(names) - len(function.__defaults__) :].index(name)


_NUMBERS = itertools.count()


def make(folder: Path, framework: str, cases: Sequence[Case]) -> Program:
    """Write the module of a program, another than those that are imported already, and import it."""
    name = f"{framework}_{next(_NUMBERS)}"
    _write(folder, framework, cases, name)
    return Program(folder, name, framework, cases)


def _write(folder: Path, framework: str, cases: Sequence[Case], name: str) -> None:
    by = {part: [case for case in cases if getattr(case.place, part)] for part in ("parameters", "keywords")}
    enclosed = [case.name for case in cases if case.place.by == "cell"]

    def each(part: str) -> str:
        once = dict.fromkeys(case.place.once.get(part, "") for case in cases)
        return "\n".join([*once, *(case.fill(getattr(case.place, part)) for case in cases)]) + "\n"

    parameters = ["self", "batch", *(case.fill(case.place.parameters) for case in by["parameters"])]
    if by["keywords"]:
        parameters += ["*", *(case.fill(case.place.keywords) for case in by["keywords"])]
    lines = ["x = batch.x", "y = self.linear(x)", "found = []"]
    for case in cases:
        lines += [f"v = {case.fill(case.place.read)}", f"found.append(y * {case.kind.number})"]
    method = _indented(f"def forward({', '.join(parameters)}):", [*lines, "return found"])
    if enclosed:  # a function in a function knows no class, and has to be told it
        method = method.replace("super()", "super(Method, self)")
        function, method = method, f"forward = enclosing({', '.join(enclosed)})"
    init = ["super().__init__()", "self.linear = linear()", *each("init").split("\n")]
    body = [*each("body").split("\n"), _indented("def __init__(self):", init), method]
    base = "Base_" if any("Base_" in case.place.of for case in cases) else "Layer"
    parts = [_FRAMEWORK[framework], _HEAD.replace("{name}", name)]
    parts += [*dict.fromkeys(case.kind.definitions for case in cases), each("before")]
    if enclosed:
        parts.append(_indented(f"def enclosing({', '.join(enclosed)}):", [function, "return forward"]))
    parts += [_indented(f"class Method({base}, metaclass=Meta_):", body), each("after")]
    (folder / f"cfg_{name}.py").write_text("")
    (folder / f"program_{name}.py").write_text("\n\n".join(parts) + "\n")


def _indented(head: str, lines: Sequence[str]) -> str:
    body = (line for text in lines for line in text.split("\n"))
    return "\n".join([head, *("    " + line if line.strip() else "" for line in body)])

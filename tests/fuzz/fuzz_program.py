"""A random program as data and as the text of a module, which can be pasted into a file and run by itself."""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz_grammar import Statement

_HEAD = '''"""Program {seed} of the fuzz test for {framework} (tests/fuzz)."""

import math

import numpy as np
import {framework}
import {framework}.nn.functional as F


class State:
    def __init__(self, value):
        self.value, self.steps, self.seen = value, 1, []


def tensor(dtype, shape, seed):
    draw = np.random.RandomState(seed)
    if dtype == "bool":
        return {make}(np.asarray(draw.uniform(size=shape) < 0.5))
    if dtype == "int64":
        return {make}(np.asarray(draw.randint(0, 4, shape), "int64"))
    return {make}(np.asarray(draw.uniform(-1, 1, shape), dtype))


def renew(layer, seed):
    with {framework}.no_grad():
        for n, weight in enumerate(layer.parameters()):
            weight.{write}(tensor("float32", tuple(weight.shape), 100 * seed + n) * 0.5)


class Program({framework}.nn.{base}):
    def __init__(self):
        super().__init__()
'''
_TAIL = """

if __name__ == "__main__":
    from hybrid_infer import inference

    eager, hot = Program(), inference(Program())
    eager.eval(), hot.eval()
    for call, seed in zip(CALLS, WEIGHTS):
        for layer in (eager, hot):
            renew(layer, seed)
            with {framework}.no_grad():
                try:
                    print("eager:" if layer is eager else "served:", layer(*call()))
                except Exception as error:
                    print(repr(error))
"""
_WORDS = {
    "torch": {"make": "torch.from_numpy", "write": "copy_", "base": "Module"},
    "paddle": {"make": "paddle.to_tensor", "write": "set_value", "base": "Layer"},
}
_count = itertools.count()


@dataclass
class Program:
    """A layer with one method, and the calls of it."""

    framework: str
    seed: int
    parameters: tuple[str, ...]
    #: Expressions of the arguments of each call.
    calls: list[list[str]]
    #: What the layer's weights are drawn by at each call.
    weights: list[int]
    layers: tuple[str, ...] = ()
    statements: list[Statement] = field(default_factory=list)
    #: Expressions of what is returned, and its form: "alone", "tuple", "list", "dict" or "nested".
    returned: list[str] = field(default_factory=list)
    form: str = "tuple"

    def result(self) -> str:
        names = self.returned
        if self.form == "alone" and len(names) == 1:
            return names[0]
        if self.form == "dict":
            return "{" + ", ".join(f"{name!r}: {name}" for name in names) + "}"
        if self.form == "nested":
            return f"({names[0]}, [" + ", ".join(names[1:]) + "])"
        listed = ", ".join(names)
        return f"[{listed}]" if self.form == "list" else f"({listed},)"

    def source(self) -> str:
        lines = [_HEAD.format(seed=self.seed, framework=self.framework, **_WORDS[self.framework]).rstrip("\n")]
        lines += [f"        {line}" for line in self.layers]
        lines += ["", f"    def forward(self, {', '.join(self.parameters)}):"]
        for each in self.statements:
            lines += [f"        {line}" for line in each.text.split("\n")]
        lines += [f"        return {self.result()}", "", "", "CALLS = ["]
        lines += [f"    lambda: ({', '.join(call)},)," for call in self.calls]
        lines += ["]", f"WEIGHTS = {self.weights}", _TAIL.format(framework=self.framework)]
        return "\n".join(lines)

    def write(self, folder: Path) -> Path:
        """The program in a file of a name of its own: Paddle reads the source of what it traces."""
        path = folder / f"fuzz_{self.framework}_{self.seed}_{next(_count)}.py"
        path.write_text(self.source(), encoding="utf-8")
        return path

    def run(self, kit: Kit, tensor: Callable[..., Any] | None = None) -> list[Any]:
        """What each call gives eagerly, all variables by name, or the exception that it raises."""
        module = module_of(self.source())
        if tensor is not None:
            module.tensor = tensor(module.tensor)  # type: ignore[attr-defined]
        layer, found = module.Program(), []
        layer.eval()
        for call, seed in zip(module.CALLS, module.WEIGHTS, strict=True):
            module.renew(layer, seed)
            found.append(kit.outcome(layer, call()))
        return found


def module_of(source: str, path: Path | None = None) -> types.ModuleType:
    """A module of this source, made anew at each call, as another process would."""
    module = types.ModuleType(path.stem if path else "fuzz_growing")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


class Kit:
    """What the fuzz test needs of a framework."""

    def __init__(self, framework: str) -> None:
        self.framework = framework
        self.module = __import__(framework)
        self.tensor: type = self.module.Tensor

    def outcome(self, layer: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """The result, or the exception."""
        try:
            with self.module.no_grad():
                return layer(*arguments)
        except Exception as error:
            return error

    def memory(self, tensor: Any) -> range:
        """The addresses that a tensor, or what it is a view of, takes up."""
        if self.framework == "torch":
            start, size = tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()
        else:
            start, size = tensor.data_ptr(), int(tensor.size) * tensor.element_size()
        return range(start, start + size)

    def array(self, tensor: Any) -> Any:
        return tensor.detach().numpy()

    def leaves(self, value: Any) -> list[Any]:
        """What lists, tuples, dicts and the program's own objects hold in the end."""
        if isinstance(value, (list, tuple)):
            return [leaf for each in value for leaf in self.leaves(each)]
        if isinstance(value, dict):
            return self.leaves(list(value.values()))
        if type(value).__name__ == "State":
            return self.leaves(list(vars(value).values()))
        return [value]

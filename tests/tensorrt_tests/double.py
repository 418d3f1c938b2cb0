"""A TensorRT that computes with ONNX Runtime on the CPU, and takes no name and no argument that the real one lacks.

Its classes are made from ``bindings.json``, which is held against the real bindings elsewhere: an attribute, a method's
argument or a member of an enumeration that is not listed for a release is an error here. What the methods do is in
`double_behaviour`.
"""

from __future__ import annotations

import enum
import json
import types
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import real_bindings
from double_behaviour import Behaviour
from host_memory import HostDriver, in_relaxed_mode

from hybrid_infer.backends._cuda import _driver
from hybrid_infer.backends.tensorrt import _probe

LISTED: dict[str, Any] = json.loads(real_bindings.LISTED.read_text(encoding="utf-8"))


@dataclass
class World:
    """What a test wants TensorRT to do, and what it did.

    ``refused``: operators that the parser does not take. ``stuck``: weights that it cannot refit. ``host``: inputs and
    outputs that it wants on the host. ``dependent``: outputs whose sizes it does not tell before a run. ``false``:
    methods, as "Class.method", that fail, each with what it returns or raises, and ``said`` what they log as an error.
    ``wrong``: plans, by number, that compute something else. ``libraries``: of other ones it takes no plan. The rest
    says what was asked of it; ``outside``: what was made or destroyed outside of the driver's relaxed mode.
    """

    release: str = "11.4"
    gpu: str = "double"
    refused: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    host: set[str] = field(default_factory=set)
    dependent: set[str] = field(default_factory=set)
    false: dict[str, Any] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    wrong: set[int] = field(default_factory=set)
    libraries: int = 0
    steps: int = 3
    at_step: Callable[[int], None] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    timings: list[bytes] = field(default_factory=list)
    flags: list[set[str]] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    models: list[Any] = field(default_factory=list)
    profiles: list[dict[str, Any]] = field(default_factory=list)
    scratch: int = 1000
    streams: list[int] = field(default_factory=list)
    driver: HostDriver = field(default_factory=lambda: HostDriver(captures=False))
    outside: list[str] = field(default_factory=list)

    def happens(self, what: str) -> None:
        """Something that would spoil what another thread captures, were it not in the relaxed mode."""
        self.driver.order.append((what, 0, 0))
        if not in_relaxed_mode():
            self.outside.append(what)


def install(monkeypatch: pytest.MonkeyPatch) -> World:
    """Have the engine find the double where it looks for TensorRT and for a GPU."""
    made = World()
    modules: dict[str, Any] = {}

    def found() -> Any:
        if made.release not in modules:
            modules[made.release] = module(made)
        return modules[made.release]

    monkeypatch.setattr(_driver, "driver", lambda: made.driver)
    monkeypatch.setattr(_probe, "missing", lambda: "")
    monkeypatch.setattr(_probe, "module", found)
    monkeypatch.setattr(_probe, "version", lambda: found().__version__)
    monkeypatch.setattr(_probe, "gpu", lambda index: _driver.Gpu(made.gpu, 9, 0))
    return made


def module(world: World) -> Any:
    """A module that can stand in for ``tensorrt``."""
    made = types.ModuleType("tensorrt")
    listed = LISTED[world.release]
    made.__version__ = listed["facts"]["version"]  # type: ignore[attr-defined]
    behaviour = Behaviour(world, made)
    for name, known in listed["classes"].items():
        setattr(made, name, _class(name, known, behaviour))
    return made


def _class(name: str, known: dict[str, Any], behaviour: Behaviour) -> Any:
    if known["members"]:
        # Members that are not listed are left out: the numbers are those of the release.
        return enum.IntEnum(name, known["members"])
    body: dict[str, Any] = {"__slots__": ("__dict__", "__weakref__"), "__setattr__": _strict(name, known)}
    for each, overloads in known["methods"].items():
        body[each] = _method(name, each, overloads, behaviour)
    for each in known["properties"]:
        body[each] = property(
            lambda self, each=each: behaviour.read(name, each, self),
            lambda self, value, each=each: self.__dict__.__setitem__(each, value),
        )
    if name == "IHostMemory":
        body["__bytes__"] = lambda self: self.data
    if name == "Dims":
        body["__iter__"] = lambda self: iter(self.sizes)
    if name == "IOptimizationProfile":
        body["__bool__"] = lambda self: True
    for each in known["classes"]:
        body[each] = type(each, (int,), {})
    return type(name, (), body)


def _strict(name: str, known: dict[str, Any]) -> Callable[[Any, str, Any], None]:
    def assign(self: Any, attribute: str, value: Any) -> None:
        if type(self).__name__ == name and not known["properties"].get(attribute):
            raise AttributeError(f"{name} has no {attribute} that can be set")
        self.__dict__[attribute] = value

    return assign


def _method(kind: str, name: str, overloads: list[dict[str, Any]], behaviour: Behaviour) -> Callable[..., Any]:
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        for overload in overloads:
            names = [each["name"] for each in overload["arguments"]]
            needed = [each["name"] for each in overload["arguments"] if not each["optional"]]
            given = dict(zip(names, arguments, strict=False))
            if len(arguments) > len(names) or set(keywords) - set(names) or set(given) & set(keywords):
                continue
            given.update(keywords)
            if set(needed) <= set(given):
                break
        else:
            raise TypeError(f"{kind}.{name}(): incompatible function arguments: {arguments} {keywords}")
        behaviour.world.counts[f"{kind}.{name}"] += 1
        if f"{kind}.{name}" in behaviour.world.false:
            if f"{kind}.{name}" in behaviour.world.said:
                behaviour.say(behaviour.logger, behaviour.world.said[f"{kind}.{name}"])
            answer = behaviour.world.false[f"{kind}.{name}"]
            if isinstance(answer, BaseException):
                raise answer
            return answer
        return getattr(behaviour, f"{kind}_{name.strip('_')}")(self, *given.values())

    call.__name__ = name
    return call

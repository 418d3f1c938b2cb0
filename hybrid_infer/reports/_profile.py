"""Where the time of a program goes: every call of a layer, and of the methods of its class, timed while it runs.

The frameworks' root classes of layers are patched for the time of the recording, and so are the methods of the
program's own classes; nothing of a layer's instance is touched. Frameworks need not be imported yet.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from hybrid_infer import _fork_safe, _frontends
from hybrid_infer._errors import HybridInferError
from hybrid_infer._imports import Finder

#: The modules in which the frameworks keep the root of all layers, and its name there.
_ROOTS = {"torch.nn.modules.module": "Module", "paddle.nn.layer.layers": "Layer"}
FORWARD = "forward"
#: Held while classes are patched: what two threads patch at once could not be put back in any order.
_ONE = _fork_safe.Lock(threading.RLock)
_PATIENCE = 60.0  # seconds
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Node:
    """Calls of one method of one layer from one place in the program.

    ``seconds``: with all that it calls. ``arguments`` and ``modes``: of its first call, kept alive by this.
    """

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name
        self.calls, self.seconds = 0, 0.0
        self.arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self.modes: Any = None
        self.children: dict[tuple[int, str], Node] = {}


class Recording:
    """A tree of calls below ``top``; ``seconds`` from the first call of a layer to the end of the last one.

    ``holders``: the variables and attributes of the program from which layers were called, by their names there.
    """

    def __init__(self) -> None:
        self.top = Node(None, "")
        self.holders: dict[str, Any] = {}
        self.main: Any = None  # the main module of that time, which `runpy` takes away at the end
        self._began = self._ended = 0.0
        self._here = threading.local()
        self._patches: list[tuple[type, str, Any, Any]] = []
        self._patching = _fork_safe.Lock()  # a thread of the program may be about to, where all is being put back
        self._known: set[type] = set()
        self._active = False  # what is imported meanwhile may keep a patched function: torch.fx does

    @property
    def seconds(self) -> float:
        return self._ended - self._began

    @contextmanager
    def on(self, kinds: Iterable[type] = ()) -> Iterator[None]:
        """Record what is called meanwhile, on every thread.

        Of layers that there are already, the methods are timed from the first call of a layer of their class on; at
        once where it is one of `kinds`. Raises HybridInferError where another thread records for a minute.
        """
        if not _ONE.acquire(timeout=_PATIENCE):
            raise HybridInferError("another thread of this process is at suggest(): run one after the other")
        self._active = True
        finder = Finder(_ROOTS, self._loaded)
        sys.meta_path.insert(0, finder)
        try:
            for name in _ROOTS:
                if hasattr(sys.modules.get(name), _ROOTS[name]):
                    self._loaded(sys.modules[name])
            for kind in kinds:
                self._meet(kind)
            yield
        finally:
            try:
                self._restore()
                if finder in sys.meta_path:
                    sys.meta_path.remove(finder)
            finally:
                _ONE.release()

    def _restore(self) -> None:
        with self._patching:
            self._active = False
            for kind, name, original, replacement in reversed(self._patches):
                if vars(kind).get(name) is replacement:  # else the program has patched it in turn, around ours
                    setattr(kind, name, original)
            self._patches.clear()

    def _loaded(self, module: types.ModuleType) -> None:
        kind = getattr(module, _ROOTS[module.__name__])
        call, initialise = kind.__call__, kind.__init__

        @functools.wraps(initialise)
        def __init__(layer: Any, *args: Any, **kwargs: Any) -> None:
            self._meet(type(layer))
            initialise(layer, *args, **kwargs)

        @functools.wraps(call)
        def __call__(layer: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._active:
                return call(layer, *args, **kwargs)
            self._meet(type(layer))
            return self._timed(call, FORWARD, layer, args, kwargs)

        self._patch(kind, "__init__", __init__)
        self._patch(kind, "__call__", __call__)

    def _patch(self, kind: type, name: str, replacement: Any) -> None:
        with self._patching:
            if self._active:
                self._patches.append((kind, name, vars(kind)[name], replacement))
                setattr(kind, name, replacement)

    def _meet(self, kind: type) -> None:
        """Have the methods of a class of the program timed; of the frameworks' classes their calls tell enough."""
        if kind in self._known or not self._active:
            return
        self._known.add(kind)
        for base in kind.__mro__:
            if base.__module__.partition(".")[0] in ("torch", "paddle", "builtins", "typing", "abc"):
                continue
            if base is not kind:
                self._known.add(base)
            for name, function in list(vars(base).items()):
                dunder = name.startswith("__") and name.endswith("__")
                if isinstance(function, types.FunctionType) and not dunder and not hasattr(function, "__timed__"):
                    self._patch(base, name, self._wrapped(name, function))

    def _wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not args or not self._active:
                return function(*args, **kwargs)
            return self._timed(function, name, args[0], args[1:], kwargs)

        timed.__timed__ = True  # type: ignore[attr-defined]
        return timed

    def _timed(self, function: Callable[..., Any], name: str, owner: Any, args: Any, kwargs: Any) -> Any:
        stack = self._here.__dict__.setdefault("stack", [self.top])
        parent = stack[-1]
        if parent.owner is owner and parent.name == name:  # a layer's call and its forward are one; so is a recursion
            return function(owner, *args, **kwargs)
        node = parent.children.get((id(owner), name))
        if node is None:
            node = parent.children[id(owner), name] = Node(owner, name)
            node.arguments = args, kwargs
            frontend = _frontends.of(owner)
            node.modes = None if frontend is None else frontend.modes()
            if parent is self.top:
                self._look_around(owner)
        stack.append(node)
        start = time.perf_counter()
        self._began = self._began or start
        try:
            return function(owner, *args, **kwargs)
        finally:
            self._ended = time.perf_counter()
            node.seconds += self._ended - start
            node.calls += 1
            stack.pop()

    def _look_around(self, layer: Any) -> None:
        """Note by which name the program holds a layer that it calls, for the line that it is told to add."""
        kind = _frontends.of(layer).layer_type if _frontends.of(layer) is not None else ()
        frame: types.FrameType | None = sys._getframe(2)
        self.main = sys.modules.get("__main__")
        while frame is not None:
            if "-packages" not in frame.f_code.co_filename and not frame.f_code.co_filename.startswith(_OURS):
                near = dict(frame.f_locals)
                owner = near.pop("self", None)
                near |= {f"self.{name}": value for name, value in getattr(owner, "__dict__", {}).items()}
                found = {name: value for name, value in near.items() if isinstance(value, kind)}
                for name, value in found.items():
                    self.holders.setdefault(name, value)
                if any(layer is each for value in found.values() for each in layers(value)):
                    return
            frame = frame.f_back


def layers(layer: Any) -> Iterator[Any]:
    """A layer and those inside of it."""
    yield from layer.modules() if hasattr(layer, "modules") else layer.sublayers(include_self=True)


def paths(root: Any) -> dict[int, str]:
    """By the id of each layer inside of one, and of itself: its path there."""
    named = root.named_modules() if hasattr(root, "named_modules") else root.named_sublayers(include_self=True)
    found: dict[int, str] = {}
    for name, layer in named:
        found.setdefault(id(layer), name)
    return found

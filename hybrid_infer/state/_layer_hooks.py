"""Hooks around the layers of a method: Python code that no static graph holds, and what to do about one.

Those of transformers are another matter. A forward pass that is to return the hidden states or attentions of its layers
puts hooks on them once and for all, which give each result to a collector: a context variable that every model's
forward pass sets for its own time. A hook that finds no collector for its key does nothing ("asleep"), so it is no
obstacle, and neither is one that wakes up inside of a method, whose results it gives to that method alone.

Nor is one of a framework's own that computes an attribute of its layer from the layer's weights before each call, as
``weight_norm``, ``spectral_norm`` and torch's pruning put there: it is traced along. That attribute is no weight then,
and to write it is no effect: nobody may read it in a method before it is computed there.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hybrid_infer._errors import TraceError

_CAPTURING = "transformers.utils.output_capturing"
#: Of transformers 5: the attribute of a model that has its hooks. They are put in place as soon as they are needed.
INSTALLED = "_output_capturing_hooks_installed"
_PRUNE = "torch.nn.utils.prune"
#: Hooks that compute an attribute, which an attribute of their own names: the modules and names of their classes.
_RECOMPUTING = frozenset(
    {
        ("paddle.nn.utils.weight_norm_hook", "WeightNorm"), ("paddle.nn.utils.spectral_norm_hook", "SpectralNorm"),
        ("torch.nn.utils.weight_norm", "WeightNorm"), ("torch.nn.utils.spectral_norm", "SpectralNorm"),
        (_PRUNE, "Identity"), (_PRUNE, "RandomUnstructured"), (_PRUNE, "L1Unstructured"), (_PRUNE, "RandomStructured"),
        (_PRUNE, "LnStructured"), (_PRUNE, "CustomFromMask"), (_PRUNE, "PruningContainer"),
    }
)  # fmt: skip
_NAMES = ("name", "_tensor_name")
_AWAKE = (
    "transformers gathers hidden states or attentions there for a model that is called with output_hidden_states=True "
    "or output_attentions=True: decorate that model, or call it without"
)


#: Where the layer is whose method is decorated.
OWN = ("self",)


class Hooked(NamedTuple):
    """A layer with hooks; ``name``: of the dict that holds them."""

    layer: Any
    name: str
    reason: str
    remedy: str

    def still(self) -> bool:
        return not harmless([getattr(self.layer, self.name)])


class Rewritten(NamedTuple):
    """A layer whose ``forward`` was replaced by code that holds layers of the program where no copy has its own."""

    layer: Any
    forward: Any
    reason: str
    remedy: str = "Decorate a method below that layer"

    def still(self) -> bool:
        return vars(self.layer).get("forward") is self.forward


def find(layers: Iterable[tuple[Sequence[str], Any]], names: Iterable[str], own: bool = False) -> Hooked | None:
    """The first hook of a layer other than the method's own, whose caller runs those of that one unless `own`."""
    names = tuple(names)
    for path, layer in layers:
        if (own or path != OWN) and (found := around(path, layer, names)) is not None:
            return found
    return None


def around(path: Sequence[str], layer: Any, names: Iterable[str]) -> Hooked | None:
    """The first hook of a layer that no static graph holds."""
    for name in names:
        hooks = getattr(layer, name, None)
        if hooks and not harmless([hooks]):
            own = all(_collected(hook) is not None for hook in hooks.values() if not _attribute(hook))
            remedy = _AWAKE if own else "Remove the hook, or decorate a method below it"
            return Hooked(layer, name, f"{'.'.join(path)} has a hook ({name})", remedy)
    return None


def recomputed(layer: Any, names: Iterable[str]) -> frozenset[str]:
    """The attributes of a layer that its hooks compute anew before each of its calls."""
    boxes = (vars(layer).get(name) for name in names)
    return frozenset(found for box in boxes if box for hook in box.values() if (found := _attribute(hook)))


def described(box: Mapping[Any, Any]) -> list[Any]:
    """What decides about what the hooks in a dict compute, as plain data."""
    return [[type(hook).__module__, type(hook).__name__, _decisive(hook)] for hook in recomputing(box)]


def _decisive(hook: Any) -> dict[str, Any]:
    """Of one that prunes, what it has computed its mask by counts no more: that is a tensor of its layer."""
    return {_NAMES[1]: _attribute(hook)} if type(hook).__module__ == _PRUNE else vars(hook)


def recomputing(box: Mapping[Any, Any]) -> list[Any]:
    """The hooks in a dict that compute an attribute."""
    return [hook for hook in box.values() if _attribute(hook)]


def _attribute(hook: Any) -> str:
    """The attribute that a hook computes; none where the program has put a method of its own into the class."""
    kind = type(hook)
    if (kind.__module__, kind.__name__) not in _RECOMPUTING:
        return ""
    bodies = (each for base in kind.__mro__ for each in vars(base).values() if isinstance(each, types.FunctionType))
    whole = all(each.__module__ == kind.__module__ for each in bodies)
    return next((str(vars(hook)[name]) for name in _NAMES if name in vars(hook)), "") if whole else ""


class Refusing(dict[Any, Any]):
    """Stands in a copy for hooks of the method's own layer, which run if the method calls that layer."""

    def __init__(self, hooked: Hooked) -> None:
        super().__init__()
        self.hooked, self.asked = hooked, False

    def _refuse(self) -> Any:
        self.asked = True
        raise TraceError(self.hooked.reason, self.hooked.remedy)

    __bool__ = __len__ = __iter__ = keys = values = items = _refuse


class Stale:
    """Stands in a copy for what a hook is going to compute: nothing can be computed with it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "an attribute that a hook computes later"


def harmless(boxes: Iterable[Mapping[Any, Any]]) -> bool:
    """Are there no hooks in the dicts, or none but those that compute an attribute, or of transformers, asleep?"""
    check = asleep(boxes)
    return check is not None and check()


def asleep(boxes: Iterable[Mapping[Any, Any]]) -> Callable[[], bool] | None:
    """Whether hooks of transformers in the dicts do nothing at the moment; None where there are others."""
    keys: dict[int, tuple[Any, set[str]]] = {}
    for hook in (hook for box in boxes for hook in box.values() if not _attribute(hook)):
        found = _collected(hook)
        if found is None:
            return None
        keys.setdefault(id(found[0]), (found[0], set()))[1].add(found[1])
    rows = list(keys.values())

    def sleep() -> bool:
        return all(not (collector := active.get()) or names.isdisjoint(collector) for active, names in rows)

    return sleep


def _collected(hook: Any) -> tuple[Any, str] | None:
    """The collector that a hook of transformers gives results to, and its key there; None for any other hook."""
    if type(hook) is not types.FunctionType or hook.__module__ != _CAPTURING or "key" not in hook.__code__.co_freevars:
        return None
    active = hook.__globals__.get("_active_collector")
    key = (hook.__closure__ or ())[hook.__code__.co_freevars.index("key")].cell_contents
    return (active, key) if hasattr(active, "get") and isinstance(key, str) else None


def installed(layer: Any, names: Collection[str]) -> bool:
    """Has a layer below `layer` hooks of transformers, in its dicts of these `names`?"""
    hooks = (hook for each in layer.modules() for name in names for hook in getattr(each, name).values())
    return any(_collected(hook) is not None for hook in hooks)

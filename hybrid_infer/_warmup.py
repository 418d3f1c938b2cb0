"""``warmup()``: have the static models of a method ready before the first request."""

from __future__ import annotations

import time
import types
from typing import Any, NamedTuple

from hybrid_infer import _ahead, _progress, _served_sizes, _spec
from hybrid_infer._errors import SpecError
from hybrid_infer._frontends import imported
from hybrid_infer._method import HotMethod
from hybrid_infer._spec import InputSpec
from hybrid_infer._stance import BACKGROUND, DEFAULT, current, stance
from hybrid_infer._version import Version
from hybrid_infer.static._static_table import leaves


class Warmed(NamedTuple):
    """What became of one set of arguments.

    ``arguments``: types and sizes, in words. ``outcome``: "compiled" (captured now), "loaded" (from disk, or from
    another instance of the class), "ready" (nothing was left to do) or "eager" (the eager method answers: ``reason``).
    ``seconds``: how long it took. ``sizes``: of dimensions that were left open, the sizes that are served, where not
    all are: a condition of the method tells them apart.
    """

    arguments: str
    outcome: str
    seconds: float
    reason: str = ""
    sizes: str = ""


def warmup(target: Any, *inputs: Any) -> list[Warmed]:
    """Compile a decorated method for arguments of several kinds, ahead of the first call that needs it.

    Sizes that several inputs differ in become dimensions that vary, as in calls; so do dimensions that an ``InputSpec``
    leaves open (None), at once. The method is not called for an answer: one that is captured is compared with the eager
    method once, one that cannot be is left alone. At a terminal a line on standard error shows the progress.

    Parameters
    ----------
    target : a layer whose ``forward`` is decorated, a decorated method of an instance, or a decorated function (where
        that takes a layer for its first argument, pass the layer itself).
    inputs : the arguments of one call each: a list or tuple of positional ones, a dict of those by name, or a single
        tensor or ``InputSpec``. A tensor may be given or described by an ``InputSpec``. One or more.

    Returns
    -------
    What became of each of `inputs`, in their order.

    Raises
    ------
    SpecError
        arguments do not suit the method's parameters. CaptureError, BackendError: it cannot be served, and its option
        ``fallback`` is "error". TypeError: `target` is not decorated.

    Examples
    --------
    >>> import torch, hybrid_infer
    >>> from hybrid_infer import InputSpec, inference
    >>> layer = inference(torch.nn.Linear(4, 2).eval(), cache_static_model=False)
    >>> done = hybrid_infer.warmup(layer, [InputSpec([None, 4])], [torch.ones(1, 4)])
    >>> [(each.arguments, each.outcome) for each in done]
    [('input: float32 (any, 4)', 'compiled'), ('input: float32 (1, 4)', 'compiled')]
    >>> with torch.no_grad(), hybrid_infer.stance("fail_on_compile"):
    ...     layer(torch.ones(17, 4)).shape
    torch.Size([17, 2])
    """
    method, owner = _resolved(target)
    if not inputs:
        raise TypeError("warmup() needs the arguments of at least one call")
    places = ["inputs"] if len(inputs) == 1 else [f"inputs[{i}]" for i in range(len(inputs))]
    calls = [_asked(method, owner, each, place) for each, place in zip(inputs, places, strict=True)]
    return [_warm(*each) for each in _progress.steps(calls, f"compiling {method.name}")]


def _resolved(target: Any) -> tuple[HotMethod, tuple[Any, ...]]:
    """A decorated method and the instance that it is about, if any."""
    found = getattr(target, "__hybrid_infer__", None)
    if found is None:
        target = getattr(target, "forward", target)
        found = getattr(target, "__hybrid_infer__", None)
    if found is None:
        what = getattr(target, "__qualname__", None) or f"an object of class {type(target).__qualname__}"
        raise TypeError(f"warmup() was given {what}, which is not decorated; pass the method that inference() serves")
    owner = getattr(target, "__self__", None)
    if owner is not None:
        return found.owned, (owner,)
    if found.has_owner:
        raise TypeError(f"warmup() was given {found.name} of the class; pass the method of an instance")
    return found, ()


class _Asked(NamedTuple):
    """One set of arguments: of which method and instance, one value for each parameter, and what was given."""

    method: HotMethod
    owner: tuple[Any, ...]
    values: tuple[Any, ...]
    given: Any


def _asked(method: HotMethod, owner: tuple[Any, ...], given: Any, place: str) -> _Asked:
    """Of a function whose first argument is a layer, that is the instance. Raises SpecError."""
    if not owner:
        by_name = isinstance(given, dict)
        owner, rest, others = method.apart((), given) if by_name else method.apart(tuple(_listed(given)), {})
        if owner:
            method, given = method.owned, others if by_name else list(rest)
    return _Asked(method, owner, _values(method, given, place), _listed(given))


def _values(method: HotMethod, given: Any, place: str) -> tuple[Any, ...]:
    """One value for each parameter; `place` is where they were given. Raises SpecError."""
    parameters = method.parameters
    if isinstance(given, dict):
        values = parameters.bind((), given)
        if values is None:
            takes = ", ".join(f"`{name}`" for name in parameters.names)
            names = ", ".join(map(repr, given)) or "none"
            raise SpecError(place, f"by name, {names} are given; the arguments of {method.name} are {takes}")
        return _spec.named(values, given, parameters, method.name, place)
    return _spec.arguments(list(_listed(given)), parameters, method.name, place)


def _listed(given: Any) -> Any:
    """The arguments of one call: by name, or in a list, which one alone need not be in."""
    alone = not isinstance(given, (dict, list, tuple)) or hasattr(given, "_fields")
    return [given] if alone else given


def _warm(method: HotMethod, owner: tuple[Any, ...], values: tuple[Any, ...], given: Any) -> Warmed:
    state = method.state(owner[0]) if owner else _alone(method, values)
    text = _spec.shown(method.parameters.names, values)
    if state is None:
        raise TypeError(f"warmup() cannot compile {method.name}: {method.unknown(owner[0])[0]}")
    before, started = (method.counters.captures, method.counters.bindings), time.monotonic()
    with stance("default"), state.frontend.no_grad():
        route = _ahead.route(state, owner, state.parameters.complete(values, given))
    seconds = time.monotonic() - started
    _ahead.failed(method, route)
    if route.eager:
        return Warmed(text, "eager", seconds, route.reason)
    captures, bindings = (method.counters.captures - before[0], method.counters.bindings - before[1])
    outcome = "compiled" if captures else "loaded" if bindings else "ready"
    return Warmed(text, outcome, seconds, sizes=_sizes(state, route.held.version, values))


def _sizes(state: Any, version: Version, values: tuple[Any, ...]) -> str:
    """What is not served of the sizes that specs among the arguments leave open."""
    if not any(isinstance(each, InputSpec) and -1 in each.shape for _, each in leaves(list(values), "")):
        return ""
    held = [] if state.family is None else [each.version for each in list(state.family.held)]
    found = _served_sizes.limits([version, *(each for each in held if each.graph)], version.tree)
    places = _ahead.places(state, values) if found else ()
    return "; ".join(f"axis {axis} of {places[i]}: {limit.text}" for (i, axis), limit in found.items())


def _alone(method: HotMethod, values: tuple[Any, ...]) -> Any:
    """The state of a function. Where no argument and no weight tells its framework, the modules that it names do."""
    state = method.alone(values, {})
    if state is None:
        code, names = getattr(method.function, "__code__", None), getattr(method.function, "__globals__", {})
        used = [names.get(name) for name in code.co_names] if code is not None else []
        modules = {each.__name__.partition(".")[0] for each in used if isinstance(each, types.ModuleType)}
        found = {name: imported(name) for name in ("torch", "paddle") if imported(name) is not None}
        known = [each for name, each in found.items() if name in modules] or list(found.values())
        if len(known) != 1:
            raise SpecError("inputs", f"nothing tells which framework {method.name} is for; pass an example tensor")
        state = method.alone((_ahead.tensor(known[0], (), "float32"),), {})
    return state


def ahead(target: Any) -> None:
    """Compile for the option ``input_spec`` of a layer or bound method that was decorated just now."""
    method, owner = _resolved(target)
    state = method.state(owner[0]) if owner else None
    name = current()
    if state is not None and name in (DEFAULT, BACKGROUND):
        state.compile_ahead(owner, method.options.background or name == BACKGROUND)

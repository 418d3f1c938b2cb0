"""``explain()``: what happened to the calls of a decorated method, and why."""

from __future__ import annotations

import copy
import math
import re
import types
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

from hybrid_infer import _chosen, _differences, _guards, _style, _troubleshooting
from hybrid_infer._dispatch import State
from hybrid_infer._family import Held
from hybrid_infer._ledger import STEPS
from hybrid_infer._method import HotMethod
from hybrid_infer._route import Eager
from hybrid_infer._version import Version
from hybrid_infer.objects import _callables
from hybrid_infer.reports import _explained_view, _found
from hybrid_infer.state import _targets

_COUNTS = ("hits", "eager_calls", "captures", "builds", "disk_loads", "bindings")
_NO_FAULT = ("busy", "slower")  # kinds of eager answers that are no refusal
_NUMBER = re.compile(r"(.*:\d+) == (-?\d+)")  # a place that a number was taken out of a tensor at, and the number
_BYTES = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4,
          "int64": 8, "float64": 8, "complex64": 8, "complex128": 16}  # fmt: skip


class Explanation:
    """What `explain` found, at one moment. ``str()``: text; `to_dict`: JSON data; `to_html`: a page."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON data: ``target`` and ``methods``, each with its ``versions`` and ``refusals``.

        Times are in seconds, sizes in bytes; what is not known is None or left out.
        """
        return copy.deepcopy(self._data)

    def to_html(self) -> str:
        """One page of HTML that refers to nothing outside of itself."""
        return _explained_view.page(self._data)

    def _repr_html_(self) -> str:
        """For notebooks."""
        return _explained_view.body(self._data)

    def __str__(self) -> str:
        return _explained_view.text(self._data)

    __repr__ = __str__


def explain(target: Any) -> Explanation:
    """What happened to the calls of a decorated method, and why: static models, engines, refusals, times.

    Of each static model: what it takes, which dimensions vary and what made them so, whether it was captured by this
    process or came from disk, the engine chosen with the figures of all candidates, what the native engine's planner
    decided, the largest difference from the eager method, the time of each step and the bytes. Of calls that the eager
    method answers: the reason. What is kept for it is written where a call finds no program that is ready, so that it
    costs other calls nothing.

    Parameters
    ----------
    target : a decorated method bound to an instance, a decorated function, ``Class.method`` (every instance), or a
        layer or other instance: its decorated methods and those of all its sublayers, where blocks that share static
        models are one row.

    Raises
    ------
    TypeError
        nothing in `target` is decorated.

    Examples
    --------
    >>> import torch, hybrid_infer
    >>> layer = hybrid_infer.inference(torch.nn.Linear(4, 2).eval(), cache_static_model=False)
    >>> with torch.no_grad():
    ...     shape = layer(torch.ones(3, 4)).shape
    >>> found = hybrid_infer.explain(layer).to_dict()["methods"][0]
    >>> found["versions"][0]["takes"], found["versions"][0]["origin"]
    (['input: float32 (3, 4)'], 'captured')
    """
    groups: dict[Any, _Group] = {}
    for place, method, state in _found.found(target):
        family = None if state is None else state.family
        key = (method.name, method.options, None if family is None else id(family))
        group = groups.setdefault(key, _Group(method, family))
        group.places.append(place)
        if state is not None and not any(state is each for each in group.states):
            group.states.append(state)
    if not groups:
        takes = "it takes a decorated function or method, or a layer, object or class that has one"
        if callable(getattr(target, "hybrid_infer_model", None)):
            takes = "print() tells what a static model takes and gives"
        raise TypeError(f"explain() was given {_kind(target)}, in which nothing is decorated; {takes}")
    by = _callables.made_by(target)
    return Explanation({"target": _kind(target), "methods": [group.report(by) for group in groups.values()]})


def _kind(target: Any) -> str:
    hot = getattr(target, "__hybrid_infer__", None)
    if isinstance(hot, HotMethod):
        return hot.name
    if isinstance(target, (type, types.FunctionType, types.MethodType)):
        return f"{target.__module__}.{target.__qualname__}"
    return f"a {type(target).__module__}.{type(target).__qualname__}"


class _Group:
    """Instances that share their static models."""

    def __init__(self, method: HotMethod, family: Any) -> None:
        self.method, self.family = method, family
        self.places: list[str] = []
        self.states: list[State] = []

    def report(self, compiled_by: str) -> dict[str, Any]:
        """`compiled_by`: what made the thing that was asked for of one that is decorated."""
        held = self._held()
        counts = self.method.counters.as_dict()
        fired: dict[str, int] = {}
        for state in self.states:
            for what, times in list(state.fired.items()):
                if times > 0:
                    fired[what] = fired.get(what, 0) + times
        root = getattr(getattr(self.family, "store", None), "root", None)
        served = [each for each in held if each.version.graph is not None]
        apart = _told_apart([each.version for each in served])
        return {
            "method": self.method.name,
            "where": list(dict.fromkeys(re.sub(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)", "*", p) for p in self.places if p)),
            "instances": len(self.states) or len(self.places),
            "called": bool(self.states),
            "compiled_by": compiled_by,
            "calls": {name: counts[name] for name in _COUNTS},  # of all instances of the class
            "method_key": None if self.family is None else self.family.key,
            "store": None if root is None else str(root),
            "versions": [
                {**self._version(each), "told_apart_by": told} for each, told in zip(served, apart, strict=True)
            ],
            "refusals": list(self._refusals([h.version for h in held if h.version.reason], counts["fallbacks"])),
            "changes": fired,
        }

    def _held(self) -> list[Held]:
        """Their static models, with those in use that lie in other families: of a large program, by what ran."""
        held = [] if self.family is None else list(self.family.held)
        for state in self.states:
            used = [route.held for route in list(state.routes.values())]
            for each in [*used, *(slower for slower, _ in list(state.slower.values()))]:
                if not any(each is known for known in held):
                    held.append(each)
        return held

    def _version(self, held: Held) -> dict[str, Any]:
        version, ledger = held.version, held.ledger
        unread = [_style.NAME, *(carry.name for carry in version.carries if not carry.read)]
        places, int_places = _differences.places(version.tree, version.names)
        routes = [r for s in self.states for r in list(s.routes.values()) if r.held is held]
        slower = [s for s in self.states if any(h is held for h, _ in list(s.slower.values()))]
        dims = [(i, a) for i, t in enumerate(version.tensors) for a, n in enumerate(t.shape) if n is None]
        why = {(i, a): reason for i, a, reason in version.fixed_by}
        return {
            "key": None if held.entry is None or self._in_memory() else held.entry.version,
            "origin": held.origin,
            "takes": [f"{p}: {_differences.spec(t)}" for p, t in zip(places, version.tensors, strict=True)]
            + [f"{p}: int {'any' if n is None else n}" for p, n in zip(int_places, version.ints, strict=True)],
            "constants": _constants(version.tree, version.names, unread),
            "passed": _differences.passed(version),  # where a wrapper may look at that
            **_outputs(version, places),
            "dynamic": [
                {"tensor": places[i], "axis": a, "why": ledger.opened.get((i, a), "varied when it was captured")}
                for i, a in dims
            ],
            "fixed_by_the_tracer": [
                {"tensor": places[i], "axis": a, "why": why.get((i, a), "")} for i, a in sorted(version.specialised)
            ],
            "conditions": [_guards.text(c, places, int_places) for c in _guards.distinct(version.conditions)],
            **_taken(version),
            "reads": [".".join((*r.path, r.name)) for r in version.reads],
            "served_by": sorted({r.program.engine for r in routes} | ({"eager"} if slower else set())),
            "weights": sorted({"live" if r.follows else "bound" for r in routes}),
            "choices": list(_choices(held)),
            "not_considered": self._left_out(held, [r.program.engine for r in routes]),
            "decisions": _decisions(held, routes),
            "largest_error": dict(ledger.errors),
            "seconds": {step: ledger.seconds[step] for step in STEPS if step in ledger.seconds},
            "bytes": _sizes(held),
        }

    def _left_out(self, held: Held, serving: Sequence[str]) -> dict[str, str]:
        """Why engines are not used: what this process found, or the one that measured them."""
        known = _chosen.left_out(self.family.store, held)
        return {name: why for name, why in known.items() if name not in serving} | held.ledger.unfit

    def _in_memory(self) -> bool:
        return getattr(self.family.store, "root", None) is None

    def _refusals(self, failed: Iterable[Version], counted: dict[str, int]) -> Iterator[dict[str, Any]]:
        """Why calls were answered eagerly; a reason that only the counts of the class still know comes last."""
        # Where one engine of several failed, another one serves.
        known = {v.reason: (v.remedy, v.kind) for v in failed if not v.scope or v.reason in counted}
        for state in self.states:
            for route in list(state.memo.values()):
                if isinstance(route, Eager):
                    known.setdefault(route.reason, (route.remedy, route.kind))
        others = [reason for reason in counted if reason not in known] if self.states else []
        for reason in [*known, *others]:
            remedy, kind = known.get(reason, ("", ""))
            yield {
                "reason": reason, "remedy": _troubleshooting.remedy(reason, remedy), "kind": kind,
                "section": f"{_troubleshooting.PAGE}#{_troubleshooting.section(reason, remedy).name}",
                "calls": counted.get(reason, 0),
                "refused": bool(kind) and kind not in _NO_FAULT,
            }  # fmt: skip


def _told_apart(versions: Sequence[Version]) -> list[dict[str, str]]:
    """Of each version, what it asks of the instance and its surroundings that another one asks otherwise."""
    asked = [_differences.of_instance(each) for each in versions]
    texts: dict[str, set[str]] = defaultdict(set)
    for what, text in (item for each in asked for item in each.items()):
        texts[what].add(text)
    every = [what for what, found in texts.items() if len(found) > 1]
    some = [what for what, found in texts.items() if len(found) == 1 and not all(what in each for each in asked)]
    found = []
    for mine in asked:
        names = [what for what in every if what in mine] or [what for what in some if what in mine]
        found.append({what: mine[what] for what in names})
    return found


def _choices(held: Held) -> Iterator[dict[str, Any]]:
    terms = _chosen.distinct({key: held.ledger.terms.get(key, {}) for key in list(held.choices)})
    scales = held.ledger.scales
    for key, choice in sorted(list(held.choices.items()), key=lambda each: scales.get(each[0]) or 0):
        scale = scales.get(key)
        least = None if scale is None else (1 << (2 * scale - 1) if scale else 0)
        yield {
            "engine": choice.name,
            "seconds": dict(choice.seconds),
            "in_a_row": dict(choice.in_a_row),  # of engines that are alike beside eager work
            "steady": choice.steady,
            "differs_by": terms.get(key, {}),  # from other choices, in what was asked for
            # Of all tensors of a call together.
            "elements": None if scale is None or least is None else [least, (1 << (2 * scale + 1)) - 1],
        }


def _decisions(held: Held, routes: Iterable[Any]) -> dict[str, list[dict[str, str]]]:
    """What the planners of the engines that serve a version decided, in order, of those that tell."""
    from hybrid_infer import backends

    device = held.version.tensors[0].device if held.version.tensors else "cpu"
    found: dict[str, list[dict[str, str]]] = {}
    for route in routes:
        name = route.program.engine
        tell = getattr(backends.engine(name, device), "decisions", None)
        prepared = next((plan for plan in list(held.plans.values()) if plan.graph is route.graph), None)
        if tell is not None and prepared is not None and name not in found:
            found[name] = [*tell(prepared.files), *getattr(route.program, "decided", ())]
    return found


def _sizes(held: Held) -> dict[str, int]:
    version = held.version
    weights = sum(math.prod(w.shape) * _BYTES.get(w.dtype, 0) for w in version.weights)
    graph = len(version.graph.model) if version.graph is not None else 0
    if held.entry is not None:
        graph = sum(held.entry.files.values())
    plans = sum(len(data) for plan in list(held.plans.values()) for data in plan.files.values())
    return {"graph": graph, "plans": plans, "weights": weights}


def _outputs(version: Version, places: Sequence[str]) -> dict[str, list[str]]:
    """What a graph computes: results of the method, what tensors hold that it writes to, and what it assigns."""
    specs = [] if version.graph is None else [*map(_differences.spec, version.graph.output_specs)]
    written: dict[int, str] = {}
    for place in _targets.targets(version.results):
        origin, i = version.sources[place]
        written[version.sources[place + 1][1]] = places[i] if origin == "x" else version.weights[i].name
    assigned = _targets.assigned(version.results)
    kept = {place for leaves in assigned.values() for place in leaves}
    given = {i for place, (origin, i) in enumerate(version.sources) if origin == "y" and place not in kept}
    held = _held(version)
    return {
        "gives": [held[n] + spec for n, spec in enumerate(specs) if n in given and n not in written],
        "writes": [f"{name}: {specs[number]}" for number, name in sorted(written.items())],
        "assigns": [version.carries[number].name for number in assigned],
    }


def _taken(version: Version) -> dict[str, list[str]]:
    """What is taken for granted of values, and checked: ways of branches, and numbers, with their lines."""
    sides = dict.fromkeys(version.sides)
    numbers = [found for place, _ in sides if (found := _NUMBER.fullmatch(place)) is not None]
    return {
        "branches": [f"{place}: {'true' if way else 'false'}" for place, way in sides if not _NUMBER.fullmatch(place)],
        "numbers": [f"{found[1]}: {found[2]}" for found in numbers],
    }


def _held(version: Version) -> dict[int, str]:
    """Where in what the method returns a computed result is, by its number; nothing where it is all of it."""
    places = [place for _, place in _differences.leaves(_targets.returned(version.results), "")]
    found: dict[int, list[str]] = {}
    for (origin, i), place in zip(version.sources, chain(places, repeat("put into an argument")), strict=False):
        if origin == "y":
            found.setdefault(i, []).append(place)
    return {i: ", ".join(dict.fromkeys(each)) + (": " if any(each) else "") for i, each in found.items()}


def _constants(tree: Any, names: Sequence[str], but: Collection[str]) -> dict[str, str]:
    """The arguments that a static model has taken in as they were, in words; none of those that it does not look at."""
    return {
        names[n] if n < len(names) else str(n): _differences.shown(child)
        for n, child in enumerate(tree[-1])
        if child[0] == "c" and not (n < len(names) and names[n] in but)
    }

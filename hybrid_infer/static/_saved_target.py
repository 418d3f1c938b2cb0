"""What ``save()`` was given: the methods in it that are to be saved, and the calls that each is to take."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hybrid_infer import _frontends, _spec
from hybrid_infer._errors import SpecError
from hybrid_infer._met import Style
from hybrid_infer._method import Bound, HotMethod
from hybrid_infer._parameters import Parameters
from hybrid_infer._signature import Signatures
from hybrid_infer._spec import InputSpec
from hybrid_infer._structure import builder, constants, leaf_kinds
from hybrid_infer._types import TensorSpec, carrier
from hybrid_infer._version import Call
from hybrid_infer.objects import _callables
from hybrid_infer.static._model import FORWARD

_UNSAVED = "an object other than a dataclass among the arguments, or one list or dict in two places"
_APART = "Let the method take what is in it: tensors, numbers, text, and lists, tuples and dicts of these"
_UNSAID = "input_spec=[InputSpec(shape, dtype), ...], with None for the sizes that vary"


@dataclass
class Case:
    """Calls of one structure.

    ``tensors``: None for sizes that are to vary; ``given``: example tensors, where there are any.
    ``seen``: the calls that it was made from, none if from a spec. ``exact``: nothing else is to vary. ``hint``: sizes
    that it is known to run with. ``style``: how its arguments were passed. ``ranges``: of the tensors, as specs give
    them, None where one gives none.
    """

    tree: list[Any]
    tensors: list[TensorSpec]
    ints: list[int | None]
    names: list[str]
    given: list[Any]
    seen: list[Call]
    places: list[str]
    exact: bool = False
    hint: tuple[tuple[int, ...], ...] | None = None
    style: Style | None = None
    ranges: tuple[Any, ...] = ()


@dataclass
class Target:
    """One method: its function, the instance that it belongs to, and its cases."""

    name: str
    function: Any
    owner: Any
    frontend: Any
    parameters: Parameters
    cases: list[Case]

    @property
    def label(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}"


def targets(target: Any, input_spec: Any) -> list[Target]:
    """The methods to be saved. Raises SpecError for wrong or missing specs, TypeError for what cannot be saved."""
    found = _methods(target)
    if len(found) > 1 and input_spec is not None:
        names = ", ".join(name for name, _, _, _ in found)
        raise SpecError(
            "input_spec",
            f"it cannot be told whose it is of {names}: give each its own by inference(input_spec=...), or save one "
            f"alone, as by save(layer.{found[0][0]}, path, input_spec)",
        )
    if len(found) == 1 and found[0][2] is None:
        return [_target(*_with_owner(*found[0], input_spec))]
    return [_target(*each, input_spec, len(found) > 1) for each in found]


def _with_owner(
    name: str, function: Any, owner: Any, hot: HotMethod | None, input_spec: Any
) -> tuple[str, Any, Any, HotMethod | None, Any]:
    """Of a function that takes a layer first: with that layer, which stands first in `input_spec` or is the only one.

    Raises SpecError where it was called with several.
    """
    if isinstance(input_spec, (list, tuple)) and input_spec and _frontends.holds_layers(input_spec[0]):
        return name, function, input_spec[0], None if hot is None else hot.owned, list(input_spec[1:]) or None
    if input_spec is None and hot is not None and hot.sole is None:
        owners = hot.owners()
        if len(owners) > 1:
            said = f"{hot.name} was called with {len(owners)} layers: pass the one that is meant first, as in "
            raise SpecError("input_spec", said + "input_spec=[layer]")
        if owners:
            return name, function, owners[0], hot.owned, None
    return name, function, owner, hot, input_spec


def _methods(target: Any) -> list[tuple[str, Any, Any, HotMethod | None]]:
    """(name, function, owner, what it was decorated with) of each."""
    hot = getattr(target, "__hybrid_infer__", None)
    if isinstance(target, Bound):
        return [(FORWARD, target.__func__, target.__self__, target.__hybrid_infer__)]
    if isinstance(target, types.MethodType):
        inner = getattr(target.__func__, "__hybrid_infer__", None)
        if inner is None:
            return [(FORWARD, target.__func__, target.__self__, None)]
        return [(FORWARD, inner.function, target.__self__, inner.owned)]
    if isinstance(target, types.FunctionType):
        return [(FORWARD, target if hot is None else hot.function, None, hot)]
    if _frontends.of(target) is None or not hasattr(target, FORWARD):
        from hybrid_infer import _meant

        hint = ". Make an instance of it" if isinstance(target, type) else ""
        if isinstance(target, Mapping):
            hint = ". These are weights: load them into their layer, and save that"
        raise TypeError(
            f"save() was given {_meant.given(target)} for `target`; it takes a torch.nn.Module, a paddle.nn.Layer, "
            f"a function, a bound method or what load() gave{hint}"
        )
    maker = _callables.made_by(target)
    if maker:
        raise TypeError(f"save() was given what {maker} made of a layer for `target`; it takes the layer itself")
    found = [(name, value) for name, value in decorated(target) if isinstance(value, HotMethod)]
    if _has_no_forward(target):
        if not found:
            what = type(target).__name__
            raise TypeError(f"save() was given a {what}, which has neither a forward nor a decorated method")
        return [(name, hot.function, target, hot) for name, hot in found]
    if not found:
        forward = target.forward
        if not isinstance(forward, types.MethodType) or forward.__self__ is not target:
            raise TypeError(f"forward of the {type(target).__name__} is no method of it; save the method that it calls")
        return [(FORWARD, forward.__func__, target, None)]
    names = [name for name, _ in found]
    if FORWARD not in names:
        raise SpecError(
            "target", f"{', '.join(names)} of the {type(target).__name__} can be saved with its forward, which is not "
            f"decorated: decorate it too, or save the bound method {names[0]} by itself",
        )  # fmt: skip
    names.remove(FORWARD)
    by_name = dict(found)
    return [(name, by_name[name].function, target, by_name[name]) for name in (FORWARD, *names)]


def _has_no_forward(layer: Any) -> bool:
    """Is its forward the one of the framework's base class, which raises?"""
    base = _frontends.of(layer).layer_type
    return type(layer).forward is base.forward and FORWARD not in vars(layer)


def decorated(layer: Any) -> list[tuple[str, Any]]:
    """The decorated methods of a layer itself, in the order of their definition; base classes first."""
    found: dict[str, Any] = {}
    for kind in reversed(type(layer).__mro__):
        for name, value in vars(kind).items():
            hot = getattr(value, "__hybrid_infer__", None) if isinstance(value, types.FunctionType) else None
            if isinstance(hot, HotMethod):
                found[name] = hot.owned
            elif name in found:
                del found[name]
    for name, value in vars(layer).items():
        if isinstance(value, Bound) and value.__self__ is layer:
            found[name] = value.__hybrid_infer__
    return list(found.items())


def _target(
    name: str, function: Any, owner: Any, hot: HotMethod | None, input_spec: Any, beside: bool = False
) -> Target:
    """`beside`: is another method saved with it?"""
    parameters = Parameters(function, owner=owner is not None)
    label = f"{function.__module__}.{function.__qualname__}"
    if input_spec is None and hot is not None:
        input_spec = hot.options.input_spec
    values = None if input_spec is None else _spec.arguments(input_spec, parameters, label)
    frontend = _frontend(function, owner, values, hot)
    if frontend is None:
        raise SpecError(
            "target", f"neither {label} nor its specs hold a tensor of torch or paddle: its framework is unknown"
        )
    if values is not None:
        cases = [_specified(values, parameters, frontend)]
    else:
        cases = [replace(_seen(group), style=style) for group, style in _groups(hot, owner)]
        if not cases:
            if hot is not None and _called(hot, owner):
                raise SpecError("input_spec", f"each call of {label} had what cannot be saved: {_UNSAVED}. {_APART}")
            called = "was not called" if hot is not None else "is not decorated"
            remedy = f"Call it once, or pass {_UNSAID}" if hot is not None else f"Pass {_UNSAID}"
            if beside:
                called = "was not called by itself (what another decorated method calls is part of that one)"
                remedy = (
                    "Call it once by itself, decorate it with inference(input_spec=[...]), or save one bound method, "
                    f"as in save(layer.{FORWARD}, path)"
                )
            raise SpecError("input_spec", f"nothing is known of the arguments of {label}, which {called}. {remedy}")
    return Target(name, function, owner, frontend, parameters, cases)


def _frontend(function: Any, owner: Any, values: Any, hot: HotMethod | None) -> Any:
    found = None if owner is None else _frontends.of(owner)
    if found is None and values is not None:
        found = _frontends.of_values(values)
    if found is None:
        found = _frontends.of_state(function, owner)
    if found is None and hot is not None and hot._alone is not None:
        found = hot._alone.frontend
    return found or _frontends.only(function)


def _called(hot: HotMethod, owner: Any) -> bool:
    """Was a decorated method called, if with nothing that could be remembered?"""
    found = hot.states.get(id(owner))
    state = hot._alone if owner is None else found[1] if found is not None and found[0]() is owner else None
    return state is not None and state.met.others


def _groups(hot: HotMethod | None, owner: Any) -> list[tuple[list[Call], Style]]:
    if hot is None:
        return []
    if owner is None:
        return [] if hot._alone is None else hot._alone.met.groups()
    found = hot.states.get(id(owner))
    return [] if found is None or found[0]() is not owner else found[1].met.groups()


def _specified(values: Sequence[Any], parameters: Parameters, frontend: Any) -> Case:
    """Of specs: a tensor is made for each, so that the layout of a call comes out."""
    specs: dict[int, InputSpec] = {}
    given: dict[int, Any] = {}
    kept: list[Any] = []

    def make(spec: InputSpec) -> Any:
        tensor = example(frontend, spec.dtype, [1 if n is None else n for n in spec.sizes], 0)
        specs[id(tensor)] = spec
        kept.append(tensor)
        return tensor

    def fill(value: Any, place: str, name: str) -> Any:
        if isinstance(value, InputSpec):
            return make(value)
        if _spec.is_tensor(value):
            if not isinstance(value, frontend.tensor_type):
                value = as_tensor(frontend, value)
            kept.append(value)
            specs.setdefault(id(value), InputSpec(value.shape, value.dtype, name))
            given[id(value)] = value
        return value

    filled = [_spec.mapped(value, fill, "", name) for name, value in zip(parameters.names, values, strict=True)]
    layout = Signatures(frontend).layout(filled, parameters.names, parameters.defaults)
    if not layout.specifiable:
        raise SpecError("input_spec", f"{_UNSAVED}. {_APART}")
    wanted = [specs[id(tensor)] for tensor in layout.tensors]
    return Case(
        layout.tree,
        [TensorSpec(spec.dtype, spec.sizes) for spec in wanted],
        list(layout.ints),
        _distinct([spec.name or "" for spec in wanted]),
        [given.get(id(tensor)) for tensor in layout.tensors],
        [],
        list(layout.places),
        exact=True,
        ranges=tuple(spec.range for spec in wanted),
    )


def _seen(group: Sequence[Call]) -> Case:
    """Of calls: what differed between them is to vary."""
    last = group[-1]
    tensors = []
    for i, tensor in enumerate(last.tensors):
        sizes = [{call.tensors[i].shape[axis] for call in group} for axis in range(len(tensor.shape))]
        tensors.append(TensorSpec(tensor.dtype, tuple(s.copy().pop() if len(s) == 1 else None for s in sizes)))
    ints = [n if len({call.ints[i] for call in group}) == 1 else None for i, n in enumerate(last.ints)]
    names = [_name(place) for place in last.places]
    return Case(last.tree, tensors, ints, _distinct(names), [None] * len(tensors), list(group), list(last.places))


def _name(place: str) -> str:
    """What is called `x` of "argument `x`", and `x_0` of "argument `x`[0]"."""
    text = place.removeprefix("argument ")
    return "_".join(part for part in "".join(c if c.isalnum() or c == "_" else " " for c in text).split())


def _distinct(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for i, name in enumerate(names):
        wanted = name or f"x{i}"
        found.append(wanted if wanted not in found else f"{wanted}_{i}")
    return found


def values_of(case: Case, tensors: Sequence[Any], ints: Sequence[int], target: Target) -> tuple[Any, ...]:
    """The values of a call of a case with some tensors."""
    made, numbers = iter(tensors), iter(ints)
    leaves = [next(made) if kind == "t" else next(numbers) for kind in leaf_kinds(case.tree)]
    build = builder(case.tree, constants(target.frontend, target.parameters.defaults))
    values: tuple[Any, ...] = build(leaves)
    return values


def repeats(tree: list[Any]) -> list[int | None]:
    """For each tensor of a tree, the one that it is again."""
    if tree[0] == "t":
        return [tree[1] if len(tree) > 1 else None]
    if tree[0] in ("i", "c"):
        return []
    return [each for child in tree[-1] for each in repeats(child)]


def example(frontend: Any, dtype: str, shape: Sequence[int], whole: int, truth: bool = True) -> Any:
    """A tensor of values that most methods take: between 0 and 1, `truth`, or the integer `whole`."""
    import numpy as np

    if "float" in dtype or "complex" in dtype:
        count = int(np.prod(shape, dtype=np.int64))
        # Irrational steps: no two values are equal, whatever the sizes.
        array = ((np.arange(count, dtype=np.float64) * 0.6180339887498949) % 1.0).reshape(shape)
        wire = carrier(dtype)
        return frontend.importer(dtype, wire, "cpu")(array.astype(wire))
    array = np.full(shape, truth if dtype == "bool" else whole, dtype)
    return frontend.importer(dtype, dtype, "cpu")(array)


def trials(dtypes: Iterable[str]) -> list[tuple[int, bool]]:
    """The integers and truth values to make examples of, one after the other until a method takes them.

    1 is outside of a table with one row, and a mask that is all true leaves some methods nothing to compute with.
    """
    return [(whole, truth) for truth in ((True, False) if "bool" in dtypes else (True,)) for whole in (1, 0)]


def as_tensor(frontend: Any, array: Any) -> Any:
    """An array, or a tensor of another framework, as a tensor of this one."""
    import numpy as np

    found = np.asarray(array)
    return frontend.importer(found.dtype.name, found.dtype.name, "cpu")(np.array(found, order="C"))

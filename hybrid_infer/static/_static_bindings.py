"""From the arguments of a call to the version of a static model that takes it, and what to say where none does."""

from __future__ import annotations

import difflib
import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybrid_infer import _guards, _spec
from hybrid_infer._errors import SpecError
from hybrid_infer._parameters import Parameters
from hybrid_infer._signature import Layout, Signatures
from hybrid_infer._spec import InputSpec
from hybrid_infer._structure import builder, leaf_kinds
from hybrid_infer._types import TensorSpec
from hybrid_infer._unsupported import Unsupported
from hybrid_infer._version import Call
from hybrid_infer.static._model import Method, Model, Saved, resolved

_RULES = 3  # on sizes that a call does not meet, which a refusal names


class _Signed:
    """Something callable with a given signature."""

    def __init__(self, name: str, signature: inspect.Signature) -> None:
        self.__signature__, self.__qualname__ = signature, name

    def __call__(self) -> None: ...


class Baked:
    """A default that no file can hold, and that the graph has in it."""

    def __repr__(self) -> str:
        return "<as saved>"


def signature_of(method: Method) -> inspect.Signature:
    """The signature of the method that was saved."""
    made = []
    for each in method.parameters:
        default = inspect.Parameter.empty if each.default is None else _default(each.default)
        kinds = {int(kind): kind for kind in inspect._ParameterKind}
        made.append(inspect.Parameter(each.name, kinds[each.kind], default=default))
    return inspect.Signature(made)


def _default(node: list[Any]) -> Any:
    def unknown(kind: str, value: Any) -> Any:
        raise LookupError(kind)

    try:
        return builder(resolved(node, {}), unknown)([])
    except (LookupError, StopIteration):
        return Baked()


class Bindings:
    """From the arguments of a call to one of a method's versions: what serving and training have in common."""

    def __init__(self, model: Model, method: Method) -> None:
        self.model, self.method = model, method
        self.signature = signature_of(method)
        self.parameters = Parameters(_Signed(method.name, self.signature), owner=False)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """One value for each parameter. Raises TypeError as a call of the saved method does."""
        values = self.parameters.bind(args, kwargs)
        if values is None:
            try:
                self.signature.bind(*args, **kwargs)
            except TypeError as fault:
                said = self._unknown(args, kwargs) or f"{fault}{self._hint(kwargs)}"
                raise TypeError(f"{self.method.name}(): {said}") from None
            raise TypeError(f"{self.method.name}() does not take these arguments")
        return values

    def _unknown(self, args: Sequence[Any], given: Mapping[str, Any]) -> str:
        """What was given that there is no parameter for, by its name or by how many there are; empty if nothing."""
        parameters = self.parameters.parameters
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        named = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
        takes = f"its parameters are {', '.join(f'`{each}`' for each in self.parameters.names)}"
        if not parameters:
            takes = "it takes none"
        unknown = [name for name in given if name not in named]
        if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters):
            near = difflib.get_close_matches(unknown[0], named, 1)
            hint = self._hint(given) or (f"; did you mean `{near[0]}`?" if near else f"; {takes}")
            return f"got an unexpected keyword argument {unknown[0]!r}{hint}"
        if len(args) > len(positional) and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
            return f"{len(args)} positional arguments were given, and it takes {len(positional)}; {takes}"
        return ""

    def _hint(self, given: Mapping[str, Any]) -> str:
        """Which parameter takes a tensor that was passed by its name in the graph instead."""
        takes = described(self.method.versions[0], self)
        for name, value in zip(self.parameters.names, takes, strict=True):
            if isinstance(value, InputSpec) and value.name in given and value.name not in self.parameters.names:
                return f"; {value.name!r} is what the tensor is called in the graph, and `{name}` its parameter"
        return ""

    def layout(self, values: Sequence[Any], frontend: Any, *, traced: bool = False) -> Layout:
        """Raises SpecError for what is no part of a call; `traced`: a tracer's tensors are."""
        signatures = Signatures(frontend, traced=traced)
        try:
            found = signatures.layout(values, self.parameters.names, self.parameters.defaults)
            for tensor, place in zip(found.tensors, found.places, strict=True):
                refused = "" if traced else frontend.refuse(tensor)
                if refused:
                    raise SpecError(place, f"{refused} cannot be passed to a static model")
        except Unsupported as fault:
            reason = f"an object of class {fault.kind} cannot be passed to a static model"
            if fault.kind == "numpy.ndarray" and frontend.name:
                reason = f"an array cannot be passed beside tensors of {frontend.name}: let all be arrays, or tensors"
            raise SpecError(fault.place, reason) from None
        return found

    def find(
        self, values: Sequence[Any], frontend: Any, suits: Callable[[Saved, Call], bool] | None = None
    ) -> tuple[Saved, Layout]:
        """The version that takes a call, and the call's layout in its order. Raises SpecError.

        ``suits`` is asked for calls of a trainable layer, which may be part of what is traced.
        """
        traced, suits = suits is not None, suits or _serves
        broken: dict[int, list[str]] = {}
        versions = sorted(self.method.versions, key=lambda saved: -saved.version.width)
        for saved in versions:
            version = saved.version
            ordered = [_ordered(value, node) for value, node in zip(values, version.tree[-1], strict=True)]
            layout = self.layout(ordered, frontend, traced=traced)
            if not self._alike(version.tree, layout.tree):
                continue
            call = Call(
                version.tree, tuple(self._specs(layout, version.tensors, frontend)), tuple(layout.ints), version.ambient
            )
            if len(call.tensors) == len(version.tensors) and suits(saved, call):
                return saved, layout
            if not traced and version.similar(call):
                places = [place.removeprefix("argument ") for place in layout.places]
                broken[id(saved)] = [_guards.text(rule, places) for rule in version.broken(call)]
        tried = [saved for saved in self.method.versions if saved.programs or not traced]
        raise self._refusal(values, frontend, tried, broken)

    def _specs(self, layout: Layout, wanted: Sequence[TensorSpec], frontend: Any) -> list[TensorSpec]:
        found = []
        for tensor, want in zip(layout.tensors, wanted, strict=False):
            dtype, shape, _ = frontend.describe(tensor)
            if want.dtype == "bfloat16" and dtype == "float32" and not frontend.name:  # which NumPy does not have
                dtype = "bfloat16"
            found.append(TensorSpec(dtype, shape, want.device))
        return found

    def _alike(self, saved: Any, given: Any) -> bool:
        """Are two nodes of trees of one structure? A list may stand for a tuple, a dict for a class of dicts."""
        if given[:2] == ["c", "default"] and saved[:2] != ["c", "default"] and given[2] is not None:
            given = self.method.parameters[given[2]].default
        elif saved[:2] == ["c", "default"] and given[:2] != ["c", "default"] and saved[2] is not None:
            saved = self.method.parameters[saved[2]].default
        if saved[0] == "t":
            return bool(given[0] == "t" and (len(saved) == 1 or saved == given))
        if saved[0] in ("i", "c") or given[0] in ("t", "i", "c"):
            return bool(saved == given or (given[:2] == ["c", "str"] and resolved(saved, {}) == given))
        kinds = {"u": "sequence", "n": "sequence", "d": "mapping"}
        if kinds.get(saved[0], saved[:3]) != kinds.get(given[0], given[:3]) or len(saved[-1]) != len(given[-1]):
            return False
        if saved[0] == "d" and saved[2] != given[2]:
            return False
        return all(map(self._alike, saved[-1], given[-1]))

    def _refusal(
        self, values: Sequence[Any], frontend: Any, versions: Sequence[Saved], broken: Mapping[int, Sequence[str]]
    ) -> SpecError:
        """``broken``: the conditions on sizes of a version, by its id, that the call does not meet, in words."""
        names = self.parameters.names
        known = [described(saved, self) for saved in versions]
        given = [_spec.shown([name], [value]) for name, value in zip(names, values, strict=True)]
        takes: list[str] = []
        for i, (saved, each) in enumerate(zip(versions, known, strict=True)):
            if any(i != k and _covers(other, each) for k, other in enumerate(known)):
                continue  # what a wider one takes as well need not be said
            rules = broken.get(id(saved), ())
            shortest = sorted(rules, key=len)[:_RULES]
            takes.append(_spec.shown(names, each) + (f" where {' and '.join(shortest)}" if shortest else ""))
        place = f"the call of {self.method.name}"
        for i, (name, text) in enumerate(zip(names, given, strict=True)):
            if not any(compatible(values[i], each[i], bool(frontend.name)) for each in known):
                place, given = f"the argument `{name}` of {self.method.name}", [text]
                break
        return SpecError(place, f"{'; '.join(given)} was given; this static model takes {', or '.join(takes[:4])}")


def _covers(wide: Sequence[Any], narrow: Sequence[Any]) -> bool:
    pairs = list(zip(wide, narrow, strict=True))
    return wide != narrow and all(compatible(n, w, True) for w, n in pairs)


def compatible(value: Any, saved: Any, exact: bool) -> bool:
    """Is a value, which may be a spec itself, one that a spec takes, of any size that it leaves open?"""
    if isinstance(saved, InputSpec):
        if not (isinstance(value, InputSpec) or _spec.is_tensor(value)) or len(value.shape) != len(saved.shape):
            return False
        same = _spec.dtype_name(value.dtype) == saved.dtype or (saved.dtype == "bfloat16" and not exact)
        return same and all(m in (-1, int(g)) for m, g in zip(saved.shape, value.shape, strict=True))
    if isinstance(saved, enum.Enum):
        return value is saved
    if isinstance(saved, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(value) != len(saved):
            return False
        return all(compatible(v, s, exact) for v, s in zip(value, saved, strict=True))
    if isinstance(saved, dict):
        if not isinstance(value, dict) or value.keys() != saved.keys():
            return False
        return all(compatible(value[key], saved[key], exact) for key in saved)
    return type(value) is type(saved) and (isinstance(value, Baked) or bool(value == saved))


def _serves(saved: Saved, call: Call) -> bool:
    return saved.version.fits(call)


def _ordered(value: Any, node: Any) -> Any:
    """A value whose dicts have their keys in the order of a saved tree."""
    if not isinstance(node, list) or node[0] not in ("u", "d") or not isinstance(node[-1], list):
        return value
    if node[0] == "d" and type(value) is dict:
        keys = [key for _, key in node[2]]
        if list(value) != keys and set(value) == set(keys):
            value = {key: value[key] for key in keys}
        return {k: _ordered(v, n) for (k, v), n in zip(value.items(), node[-1], strict=False)} if value else value
    if node[0] == "u" and type(value) in (list, tuple) and len(value) == len(node[-1]):
        return type(value)([_ordered(v, n) for v, n in zip(value, node[-1], strict=True)])
    return value


def inputs_of(saved: Saved) -> list[InputSpec]:
    """A spec for each tensor of a version, with the range that it was saved with; sizes that do not vary are exact."""
    tensors = saved.version.tensors
    found = []
    for tensor, name, sizes in zip(tensors, saved.names, saved.ranges or (None,) * len(tensors), strict=True):
        exact = sizes and [[given if n is None else n for n, given in zip(tensor.shape, s, strict=True)] for s in sizes]
        found.append(_spec.ranged(InputSpec(tensor.shape, tensor.dtype, name), exact))
    return found


def described(saved: Saved, bindings: Bindings) -> tuple[Any, ...]:
    """What a version takes: a value for each parameter, with an InputSpec in place of each tensor."""
    version = saved.version

    def constant(kind: str, value: Any) -> Any:
        return bindings.parameters.defaults[value] if kind == "default" else value

    ints = iter(version.ints)
    specs = iter(inputs_of(saved))
    leaves = [next(specs) if kind == "t" else next(ints) for kind in leaf_kinds(version.tree)]
    values: tuple[Any, ...] = builder(resolved(version.tree, bindings.method.fields), constant)(leaves)
    return values

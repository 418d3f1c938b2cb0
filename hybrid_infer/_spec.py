"""InputSpec: what a tensor argument looks like, without the tensor; and from specs to the arguments of one call."""

from __future__ import annotations

import copy
import dataclasses
import enum
import operator
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import Any

from hybrid_infer._errors import SpecError
from hybrid_infer._parameters import Parameters
from hybrid_infer._types import DTYPES
from hybrid_infer.objects import _constants
from hybrid_infer.state._given import is_object

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_KINDS = "an InputSpec, an example tensor, a plain value, or a list, tuple, dict or dataclass of these"


class InputSpec:
    """Shape, element type and name of one tensor argument.

    Parameters
    ----------
    shape : sizes of the dimensions; None or -1 for one that varies.
    dtype : element type: a name such as "float32", or the type of a framework or of NumPy.
    name : what the tensor is called in the saved graph: in ``StaticLayer.input_spec``, and among the inputs of an
        exported ONNX file. Calls by keyword use the names of the method's own parameters, whatever this is. None: as
        the parameter.
    min, opt, max : for an engine that builds plans for ranges of sizes (TensorRT): the smallest and the largest sizes,
        and those that it is to be fastest at (default: the largest). As many numbers as `shape` has, equal to it where
        that does not vary. `min` and `max` go together.

    Raises
    ------
    SpecError
        the shape or the element type is not one that a tensor can have.

    Examples
    --------
    >>> from hybrid_infer import InputSpec
    >>> InputSpec([None, 784], "float32", "x")
    InputSpec(shape=(-1, 784), dtype=float32, name=x)
    >>> InputSpec([None, 784], min=[1, 784], max=[64, 784])
    InputSpec(shape=(-1, 784), dtype=float32, name=None, min=(1, 784), opt=(64, 784), max=(64, 784))
    >>> InputSpec([None, 3]) == InputSpec([-1, 3], dtype="float32")
    True
    """

    __slots__ = ("dtype", "max", "min", "name", "opt", "shape")

    shape: tuple[int, ...]
    dtype: str
    name: str | None
    min: tuple[int, ...] | None
    opt: tuple[int, ...] | None
    max: tuple[int, ...] | None

    def __init__(
        self, shape: Iterable[int | None], dtype: Any = "float32", name: str | None = None, *,
        min: Iterable[int] | None = None, opt: Iterable[int] | None = None, max: Iterable[int] | None = None,
    ) -> None:  # fmt: skip
        if name is not None and not isinstance(name, str):
            raise SpecError("name", f"{name!r} is neither None nor a string")
        object.__setattr__(self, "shape", _shape(shape))
        object.__setattr__(self, "dtype", dtype_name(dtype))
        object.__setattr__(self, "name", name)
        for part, sizes in zip(("min", "opt", "max"), _range(self.shape, min, opt, max), strict=True):
            object.__setattr__(self, part, sizes)

    @property
    def range(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
        """``(min, opt, max)``, None where none was given."""
        if self.min is None or self.opt is None or self.max is None:
            return None
        return self.min, self.opt, self.max

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> InputSpec:
        """The spec of a tensor, all of whose sizes are fixed; its own name, where it has one, unless one is given."""
        own = getattr(_a_tensor("tensor", tensor), "name", None)
        return cls(tensor.shape, tensor.dtype, name if name is not None else own if isinstance(own, str) else None)

    @classmethod
    def from_numpy(cls, ndarray: Any, name: str | None = None) -> InputSpec:
        """The spec of a NumPy array, all of whose sizes are fixed."""
        _a_tensor("ndarray", ndarray)
        return cls(ndarray.shape, ndarray.dtype, name)

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """The shape with None for dimensions that vary."""
        return tuple(None if n == -1 else n for n in self.shape)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("an InputSpec cannot be changed; make another one")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InputSpec):
            return NotImplemented
        mine, theirs = ((s.shape, s.dtype, s.name, s.range) for s in (self, other))
        return mine == theirs

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.name, self.range))

    def __repr__(self) -> str:
        sizes = "" if self.range is None else f", min={self.min}, opt={self.opt}, max={self.max}"
        return f"InputSpec(shape={self.shape}, dtype={self.dtype}, name={self.name}{sizes})"

    def __reduce__(self) -> Any:
        return _remade, (self.shape, self.dtype, self.name, self.range)


def _remade(shape: tuple[int, ...], dtype: str, name: str | None, sizes: Any) -> InputSpec:
    return ranged(InputSpec(shape, dtype, name), sizes)


def ranged(spec: InputSpec, sizes: Sequence[Sequence[int]] | None) -> InputSpec:
    """A spec with the ``range`` of another one, or with none."""
    low, usual, high = (None, None, None) if sizes is None else sizes
    return InputSpec(spec.shape, spec.dtype, spec.name, min=low, opt=usual, max=high)


def _range(
    shape: tuple[int, ...], low: Any, usual: Any, high: Any
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None, tuple[int, ...] | None]:
    if low is None and usual is None and high is None:
        return None, None, None
    if low is None or high is None:
        raise SpecError("min" if low is None else "max", "a range needs both min and max")
    given = {"min": low, "max": high, "opt": high if usual is None else usual}
    parts = {name: _shape(given[name], name) for name in given}
    for name in ("min", "max", "opt"):
        sizes = parts[name]
        if len(sizes) != len(shape) or -1 in sizes:
            raise SpecError(name, f"{sizes} is not one size for each dimension of {shape}")
        odd = [axis for axis, (n, given) in enumerate(zip(shape, sizes, strict=True)) if n not in (-1, given)]
        if odd:
            raise SpecError(name, f"{sizes[odd[0]]} is not the size {shape[odd[0]]} of dimension {odd[0]}")
    for axis, (a, b, c) in enumerate(zip(parts["min"], parts["opt"], parts["max"], strict=True)):
        if not a <= b <= c:
            raise SpecError("opt", f"the sizes of dimension {axis} are not in order: min {a}, opt {b}, max {c}")
    return parts["min"], parts["opt"], parts["max"]


def ranges_of(input_spec: Any, version: Any) -> list[dict[str, Sequence[int]] | None]:
    """For each tensor, each integer that varies and each state of a version: the range that a spec gives, or None."""
    count = len(version.tensors) + sum(n is None for n in version.ints) + len(version.state)
    none: list[dict[str, Sequence[int]] | None] = [None] * count
    found = list(every(input_spec))
    shapes = [spec.shape for spec in version.tensors]
    if len(found) != len(shapes) or any(len(f.shape) != len(s) for f, s in zip(found, shapes, strict=True)):
        return none
    for i, (spec, shape) in enumerate(zip(found, shapes, strict=True)):
        parts = spec.range
        if parts is not None and all(n is None or a <= n <= c for n, a, _, c in zip(shape, *parts, strict=True)):
            sizes = [[given if n is None else n for n, given in zip(shape, part, strict=True)] for part in parts]
            none[i] = dict(zip(("min", "opt", "max"), sizes, strict=True))
    return none


def every(value: Any) -> Iterator[InputSpec]:
    """The specs in a value, in order."""
    return (each for each in _leaves(value) if isinstance(each, InputSpec))


def _described(value: Any) -> bool:
    return isinstance(value, InputSpec) or is_tensor(value)


def _leaves(value: Any) -> Iterator[Any]:
    parts = _parts(value)
    if parts is None:
        yield value
        return
    for _, part in parts:
        yield from _leaves(part)


def _parts(value: Any) -> list[tuple[Any, Any]] | None:
    """What is in a list, tuple, dict or object of the program's own classes; None of anything else."""
    if isinstance(value, enum.Enum):  # which is itself, whatever it holds
        return None
    if isinstance(value, (list, tuple, deque)):
        return list(enumerate(value))
    if isinstance(value, (dict, MappingProxyType)):
        return list(value.items())
    if _described(value):
        return None
    if not isinstance(value, type) and dataclasses.is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return list(vars(value).items()) if is_object(type(value)) else None


def mapped(value: Any, change: Callable[[Any, str, str], Any], place: str, name: str, inside: bool = False) -> Any:
    """The value with each leaf in it as `change` gives it: of the leaf, its place in words, and a name for it.

    `inside` of an object only specs and tensors are looked at: what else it holds is the program's own.
    """
    parts = _parts(value)
    if parts is None:
        return value if inside and not _described(value) else change(value, place, name)
    named = not isinstance(value, (list, tuple, deque, dict, MappingProxyType))
    items = []
    for key, part in parts:
        at = f"{place}.{key}" if named else f"{place}[{key!r}]"
        items.append(mapped(part, change, at, f"{name}_{key}", inside or named))
    if type(value) is defaultdict:
        return defaultdict(value.default_factory, zip(value, items, strict=True))
    if type(value) is deque:
        return deque(items, value.maxlen)
    if isinstance(value, MappingProxyType):
        return MappingProxyType(dict(zip(value, items, strict=True)))
    if isinstance(value, dict):
        return type(value)(zip(value, items, strict=True))
    if isinstance(value, (list, tuple)):
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if all(new is old for new, (_, old) in zip(items, parts, strict=True)):
        return value
    made = copy.copy(value)
    for new, (key, _) in zip(items, parts, strict=True):
        object.__setattr__(made, key, new)  # which may be frozen
    return made


def _shape(shape: Iterable[int | None], option: str = "shape") -> tuple[int, ...]:
    if isinstance(shape, (str, bytes, dict)) or not hasattr(shape, "__iter__"):
        raise SpecError(option, f"{shape!r} is no sequence of sizes")
    sizes = []
    for size in shape:
        if isinstance(size, bool):
            raise SpecError(option, f"{size!r} in it is no size")
        try:
            number = -1 if size is None else operator.index(size)
        except TypeError as fault:
            raise SpecError(option, f"{size!r} in it is neither a size nor None") from fault
        if number < -1:
            raise SpecError(option, f"{number} in it is no size; a dimension that varies is None or -1")
        sizes.append(number)
    return tuple(sizes)


def dtype_name(dtype: Any) -> str:
    """This library's name of an element type of any framework. Raises SpecError."""
    found = (dtype.__name__ if isinstance(dtype, type) else str(dtype)).rpartition(".")[2]
    found = {"bool_": "bool"}.get(found, found)
    if found not in DTYPES:
        from hybrid_infer import _meant

        known = ", ".join(DTYPES)
        raise SpecError("dtype", f"{dtype!r} is no element type; those are {known}{_meant.element_type(dtype, DTYPES)}")
    return found


def is_tensor(value: Any) -> bool:
    """Is it something with a shape and an element type, and neither a spec nor a number of NumPy's?"""
    return _typed(value) and _constants.encoded(value) is None


def _typed(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, (InputSpec, type))


def _a_tensor(option: str, value: Any) -> Any:
    if not _typed(value):
        raise SpecError(option, f"{value!r} is no tensor, and no array: it has no shape and element type")
    return value


def arguments(
    input_spec: Any, parameters: Parameters, method: str, option: str = "input_spec"
) -> tuple[Any, ...]:
    """One value for each parameter, from a list of specs; what is left out takes its default.

    Specs without a name get that of their parameter. `option` is what the user calls the list. Raises SpecError, which
    names the argument.
    """
    if not isinstance(input_spec, (list, tuple)):
        from hybrid_infer import _meant

        hint = "; did you mean a list of it?" if _described(input_spec) else ""
        what = f"it must be a list with an entry for each argument of {method}"
        raise SpecError(option, f"{what}, and {_meant.given(input_spec)} was given{hint}")
    values = parameters.bind(tuple(input_spec), {})
    if values is None:
        missing = [
            name
            for name, default in list(zip(parameters.names, parameters.defaults, strict=True))[len(input_spec) :]
            if default is Parameters.missing
        ]
        by_name = [p.name for p in parameters.parameters if p.kind is p.KEYWORD_ONLY]
        unlisted = [name for name in missing if name in by_name]
        if unlisted or (by_name and not missing):
            names = " and ".join(f"`{name}`" for name in unlisted or by_name)
            how = "pass a dict of the arguments by name"
            if option == "input_spec":
                how = "leave input_spec out, and call the decorated method once"
            raise SpecError(option, f"a list has no place for {names} of {method}, given by name alone: {how}")
        if missing:
            names = " and ".join(f"`{name}`" for name in missing)
            raise SpecError(option, f"it has no entry for the argument {names} of {method}")
        count = len(parameters.names)
        takes = f"{count} argument{'' if count == 1 else 's'} ({', '.join(parameters.names)})"
        raise SpecError(option, f"it has {len(input_spec)} entries where {method} takes {takes}")
    return named(values, parameters.names[: len(input_spec)], parameters, method, option)


def misnamed(names: Sequence[str], values: Sequence[Any]) -> str:
    """Where a spec has the name of another argument than the one in whose place it stands; empty if none has."""
    for name, value in zip(names, values, strict=True):
        given = value.name if isinstance(value, InputSpec) else None
        if given != name and given in names:
            return f"the entry for `{name}` is named {given!r}, as another argument is: entries go by their places"
    return ""


def named(
    values: Sequence[Any], given: Collection[str], parameters: Parameters, method: str, option: str
) -> tuple[Any, ...]:
    """The values, in which specs without a name get that of their parameter.

    `given`: the names of those that are no defaults. Raises SpecError where none is a tensor's.
    """
    found = []
    for name, value in zip(parameters.names, values, strict=True):
        mine = name in given or isinstance(value, (tuple, dict))
        found.append(mapped(value, _named, f"`{name}`", name) if mine else value)
    if not any(map(_described, _leaves(found))):
        raise SpecError(option, f"no entry of it is a tensor: {method} would be a constant")
    return tuple(found)


def _named(value: Any, place: str, name: str) -> Any:
    if type(value).__name__ == InputSpec.__name__ and not isinstance(value, InputSpec) and _typed(value):
        value = InputSpec.from_tensor(value)  # Paddle's own: it has a shape and an element type, and is no tensor
    if isinstance(value, InputSpec):
        return ranged(InputSpec(value.shape, value.dtype, name), value.range) if value.name is None else value
    if is_tensor(value) or isinstance(value, (*_PLAIN, enum.Enum)) or _constants.encoded(value) is not None:
        return value
    raise SpecError(f"the argument {place}", f"{value!r} is not {_KINDS}")


def filled(value: Any, make: Callable[[InputSpec], Any]) -> Any:
    """The value with each spec in it replaced by the tensor that `make` gives for it."""
    return mapped(value, lambda leaf, place, name: make(leaf) if isinstance(leaf, InputSpec) else leaf, "", "")


def shown(names: Sequence[str], values: Sequence[Any]) -> str:
    """What was specified, argument by argument, for a message."""
    return "; ".join(f"{name}: {_shown(value)}" for name, value in zip(names, values, strict=True))


def _shown(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return repr(value)
    if isinstance(value, InputSpec) or is_tensor(value):
        sizes = ", ".join("any" if n in (None, -1) else str(n) for n in value.shape)
        return f"{dtype_name(value.dtype)} ({sizes})"
    if isinstance(value, (list, tuple, deque)):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, (dict, MappingProxyType)):
        return f"{{{', '.join(f'{k!r}: {_shown(v)}' for k, v in value.items())}}}"
    parts = _parts(value)
    if parts is not None:
        return f"{type(value).__name__}({', '.join(f'{k}={_shown(v)}' for k, v in parts)})"
    return repr(value)
